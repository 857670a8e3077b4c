"""Reads a lake with Python's deltalake, DuckDB and Polars, and compares with what catchment says of it."""

import json
import sys
from collections import Counter

import duckdb
import polars
import pyarrow as pa
from deltalake import DeltaTable
from duckdb_extensions import import_extension

TYPES = {
    "job_id": "string", "offset": "long", "limit": "integer", "state": "string", "leased_by": "string",
    "lease_expires_at": "timestamp", "attempts": "integer", "next_attempt_at": "timestamp", "last_error_code": "string",
    "last_error_message": "string", "last_error_at": "timestamp", "done_at": "timestamp", "updated_at": "timestamp",
    "created_at": "timestamp", "payload_path": "string", "records_written": "integer",
}


def main(lake, status_file, verify_file):
    status, found = json.load(open(status_file)), json.load(open(verify_file))
    assert found["wrong"] == [], found
    states = {state: count for state, count in status["states"].items() if count}
    path = f"{lake}/_meta/backfill_jobs_events"

    table = DeltaTable(path)
    columns = {field.name: field.type.type for field in table.schema().fields}
    assert columns == TYPES and list(columns) == list(TYPES), columns
    assert table.version() == status["version"], (table.version(), status["version"])
    rows = pa.table(table.to_pyarrow_table()).to_pylist()
    assert Counter(row["state"] for row in rows) == states, states
    done = [row for row in rows if row["state"] == "done"]
    assert sum(row["records_written"] for row in done) == status["records"]
    # Every version can be read, and has every job once.
    for version in range(table.version() + 1):
        table.load_as_version(version)
        ids = [row["job_id"] for row in table.to_pyarrow_table(columns=["job_id"]).to_pylist()]
        assert len(ids) == len(set(ids)), version
    print(f"deltalake {len(rows)} rows, {states}, {table.version() + 1} versions")

    frame = polars.read_delta(path)
    assert dict(frame.group_by("state").len().iter_rows()) == states
    assert frame["records_written"].sum() == status["records"]
    print(f"polars    {frame.height} rows")

    import_extension("delta")
    duckdb.sql("load delta")
    counted = dict(duckdb.sql(f"select state, count(*) from delta_scan('{path}') group by 1").fetchall())
    assert counted == states, (counted, states)
    files = f"{lake}/polymarket/events/mode=backfill/ingest_date=*/*.jsonl"
    lines, ids = duckdb.sql(
        f"select count(*), count(distinct id) from read_json('{files}', format = 'newline_delimited', columns = {{id: 'VARCHAR'}})"
    ).fetchone()
    assert (lines, ids) == (found["records"], found["distinct"]), (lines, ids, found)
    for row in done:
        with open(row["payload_path"], encoding="utf-8") as payload:
            assert sum(1 for _ in payload) == row["records_written"], row
    print(f"duckdb    {sum(counted.values())} rows; {lines} events, {ids} different ones")


main(*sys.argv[1:])
