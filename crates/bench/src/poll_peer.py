"""The poller one would first write in Python: httpx in a thread pool, json, a line a book, a sync a second.

usage: poll_peer.py CLOB_URL SNAPSHOT OUT SECONDS

Only the requests run side by side, each thread with a client of its own; normalising and writing is the main thread's.
It says `ready`, begins at the first line of its input, works for SECONDS, says `{"books": n, "seconds": s}`, and ends
with its input: so its CPU time can be read from outside, before and after.
"""

import json
import os
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import httpx

BATCH = 500
THREADS = 16
SYNC_EVERY_S = 1.0

own = threading.local()


def fetch(url, body):
    if not hasattr(own, "client"):
        own.client = httpx.Client(timeout=10.0)
    answer = own.client.post(url, json=body)
    answer.raise_for_status()
    return answer.json()


def price(level):
    return float(level["price"])


def normalise(book, received_at_ms):
    return {
        "exchange": "polymarket",
        "channel": "orderbook",
        "symbol": book["asset_id"],
        "server_time_ms": int(book["timestamp"]),
        "received_at_ms": received_at_ms,
        "market": book["market"],
        "hash": book["hash"],
        "bids": sorted(book["bids"], key=price, reverse=True),
        "asks": sorted(book["asks"], key=price),
    }


def poll(pool, url, bodies, seconds, out):
    """Asks in turn for all, flat out; what is under way at the end is waited for and counts."""
    books, turn = 0, 0
    started = synced = time.monotonic()
    under_way = set()
    while True:
        now = time.monotonic()
        while now - started < seconds and len(under_way) < THREADS:
            under_way.add(pool.submit(fetch, url, bodies[turn % len(bodies)]))
            turn += 1
        if not under_way:
            break
        done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
        for answer in done:
            received_at_ms = int(time.time() * 1000)
            for book in answer.result():
                out.write(json.dumps(normalise(book, received_at_ms)) + "\n")
                books += 1
        if now - synced >= SYNC_EVERY_S:
            out.flush()
            os.fsync(out.fileno())
            synced = now
    out.flush()
    os.fsync(out.fileno())
    return books, time.monotonic() - started


def main():
    clob, snapshot, path, seconds = sys.argv[1:]
    with open(snapshot) as file:
        tokens = [instrument["poll_key"] for instrument in json.load(file)["instruments"]]
    batches = [tokens[first : first + BATCH] for first in range(0, len(tokens), BATCH)]
    bodies = [[{"token_id": token} for token in batch] for batch in batches]
    with ThreadPoolExecutor(THREADS) as pool, open(path, "a") as out:
        # Connections are opened before the time runs.
        poll(pool, clob + "/books", bodies, 0.5, out)
        print("ready", flush=True)
        sys.stdin.readline()
        books, took = poll(pool, clob + "/books", bodies, float(seconds), out)
        print(json.dumps({"books": books, "seconds": took}), flush=True)
        sys.stdin.readline()


main()
