//! Rows as a Parquet file and back.
//!
//! The types are S3's: STRING, BIGINT, INT and TIMESTAMP (microseconds, UTC), every column nullable as in a table made by
//! `CREATE TABLE`. Columns are found by name, so a file that another engine has rewritten is read as well.

use std::sync::Arc;

use bytes::Bytes;
use catchment_model::UnixMs;
use deltalake_core::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use deltalake_core::arrow::compute::cast;
use deltalake_core::arrow::datatypes::TimestampMicrosecondType;
use deltalake_core::arrow::datatypes::{
    DataType as ArrowType, Field, Int32Type, Int64Type, Schema, TimeUnit,
};
use deltalake_core::kernel::{DataType, PrimitiveType};
use deltalake_core::parquet::arrow::ArrowWriter;
use deltalake_core::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use deltalake_core::parquet::basic::Compression;
use deltalake_core::parquet::file::properties::WriterProperties;

use crate::error::LakeError;
use crate::job::{Job, State};

/// The names and types, in S3's order.
pub const COLUMNS: [(&str, PrimitiveType); 16] = [
    ("job_id", PrimitiveType::String),
    ("offset", PrimitiveType::Long),
    ("limit", PrimitiveType::Integer),
    ("state", PrimitiveType::String),
    ("leased_by", PrimitiveType::String),
    ("lease_expires_at", PrimitiveType::Timestamp),
    ("attempts", PrimitiveType::Integer),
    ("next_attempt_at", PrimitiveType::Timestamp),
    ("last_error_code", PrimitiveType::String),
    ("last_error_message", PrimitiveType::String),
    ("last_error_at", PrimitiveType::Timestamp),
    ("done_at", PrimitiveType::Timestamp),
    ("updated_at", PrimitiveType::Timestamp),
    ("created_at", PrimitiveType::Timestamp),
    ("payload_path", PrimitiveType::String),
    ("records_written", PrimitiveType::Integer),
];
const UTC: &str = "UTC";

/// A column's type in the table's schema.
pub(crate) fn delta_type(kind: &PrimitiveType) -> DataType {
    DataType::Primitive(kind.clone())
}

fn arrow_type(kind: &PrimitiveType) -> ArrowType {
    match kind {
        PrimitiveType::Long => ArrowType::Int64,
        PrimitiveType::Integer => ArrowType::Int32,
        PrimitiveType::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        _ => ArrowType::Utf8,
    }
}

/// The rows as one file.
pub(crate) fn write(jobs: &[Job]) -> Result<Bytes, LakeError> {
    let wrong = |error: &dyn std::error::Error| LakeError::Rows { reason: error.to_string() };
    let fields = COLUMNS.iter().map(|(name, kind)| Field::new(*name, arrow_type(kind), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let text = |get: fn(&Job) -> Option<&str>| -> ArrayRef {
        Arc::new(StringArray::from_iter(jobs.iter().map(get)))
    };
    let number =
        |get: fn(&Job) -> Option<i32>| -> ArrayRef { Arc::new(Int32Array::from_iter(jobs.iter().map(get))) };
    let time = |get: fn(&Job) -> Option<UnixMs>| -> ArrayRef {
        let times = jobs.iter().map(|job| get(job).map(|time| time.get().saturating_mul(1_000)));
        Arc::new(TimestampMicrosecondArray::from_iter(times).with_timezone(UTC))
    };
    let columns = vec![
        text(|job| Some(&job.job_id)),
        Arc::new(Int64Array::from_iter_values(jobs.iter().map(|job| job.offset))),
        number(|job| Some(job.limit)),
        text(|job| Some(job.state.as_str())),
        text(|job| job.leased_by.as_deref()),
        time(|job| job.lease_expires_at),
        number(|job| Some(job.attempts)),
        time(|job| job.next_attempt_at),
        text(|job| job.last_error_code.as_deref()),
        text(|job| job.last_error_message.as_deref()),
        time(|job| job.last_error_at),
        time(|job| job.done_at),
        time(|job| Some(job.updated_at)),
        time(|job| Some(job.created_at)),
        text(|job| job.payload_path.as_deref()),
        number(|job| job.records_written),
    ];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(|error| wrong(&error))?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut file = Vec::with_capacity(32 << 10);
    let mut writer =
        ArrowWriter::try_new(&mut file, schema, Some(properties)).map_err(|error| wrong(&error))?;
    writer.write(&batch).map_err(|error| wrong(&error))?;
    writer.close().map_err(|error| wrong(&error))?;
    Ok(file.into())
}

/// The rows of a file. What is wrong with it is said in words.
pub(crate) fn read(file: Bytes) -> Result<Vec<Job>, String> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| error.to_string())?;
    let reader = reader.with_batch_size(1_024).build().map_err(|error| error.to_string())?;
    let mut jobs = Vec::new();
    for batch in reader {
        read_batch(&batch.map_err(|error| error.to_string())?, &mut jobs)?;
    }
    Ok(jobs)
}

fn read_batch(batch: &RecordBatch, jobs: &mut Vec<Job>) -> Result<(), String> {
    let mut columns = Vec::with_capacity(COLUMNS.len());
    for (name, kind) in &COLUMNS {
        let column = batch.column_by_name(name).ok_or_else(|| format!("there is no column {name}"))?;
        let column =
            cast(column, &arrow_type(kind)).map_err(|error| format!("the column {name}: {error}"))?;
        columns.push(column);
    }
    let text = |at: usize, row: usize| {
        let column = columns[at].as_string::<i32>();
        column.is_valid(row).then(|| column.value(row).to_owned())
    };
    let number = |at: usize, row: usize| {
        let column = columns[at].as_primitive::<Int32Type>();
        column.is_valid(row).then(|| column.value(row))
    };
    let time = |at: usize, row: usize| {
        let column = columns[at].as_primitive::<TimestampMicrosecondType>();
        column.is_valid(row).then(|| column.value(row) / 1_000).and_then(|ms| UnixMs::new(ms).ok())
    };
    for row in 0..batch.num_rows() {
        let missing = |at: usize| format!("a row has no {}", COLUMNS[at].0);
        let job_id = text(0, row).ok_or_else(|| missing(0))?;
        let offsets = columns[1].as_primitive::<Int64Type>();
        let state = text(3, row).ok_or_else(|| missing(3))?;
        jobs.push(Job {
            offset: offsets.is_valid(row).then(|| offsets.value(row)).ok_or_else(|| missing(1))?,
            limit: number(2, row).ok_or_else(|| missing(2))?,
            state: State::read(&state).ok_or_else(|| format!("{job_id} is in no state there is: {state}"))?,
            leased_by: text(4, row),
            lease_expires_at: time(5, row),
            attempts: number(6, row).unwrap_or(0),
            next_attempt_at: time(7, row),
            last_error_code: text(8, row),
            last_error_message: text(9, row),
            last_error_at: time(10, row),
            done_at: time(11, row),
            updated_at: time(12, row).ok_or_else(|| missing(12))?,
            created_at: time(13, row).ok_or_else(|| missing(13))?,
            payload_path: text(14, row),
            records_written: number(15, row),
            job_id,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Mode, plan};

    #[test]
    fn rows_come_back_as_they_were() {
        let now = UnixMs::new(1_770_000_000_123).unwrap();
        let mut jobs: Vec<Job> =
            plan(Mode::Offset, 188_000, 500).iter().map(|task| Job::new(task, now)).collect();
        jobs[3] = Job {
            state: State::Leased,
            leased_by: Some("w@7".to_owned()),
            lease_expires_at: Some(now),
            attempts: 2,
            last_error_code: Some("HTTP_503".to_owned()),
            last_error_message: Some("no\u{2014}not now".to_owned()),
            last_error_at: Some(now),
            done_at: Some(now),
            next_attempt_at: None,
            payload_path: Some("abfss://x".to_owned()),
            records_written: Some(500),
            ..jobs[3].clone()
        };
        let file = write(&jobs).unwrap();
        assert!(file.len() < 40_000, "{} bytes", file.len());
        assert_eq!(read(file).unwrap(), jobs);
    }

    #[test]
    fn a_file_that_is_none_is_an_error() {
        assert!(read(Bytes::from_static(b"PAR1 no")).is_err());
        let jobs = [Job::new(&plan(Mode::Offset, 0, 500)[0], UnixMs::new(1).unwrap())];
        let file = write(&jobs).unwrap();
        assert!(read(file.slice(..file.len() - 9)).is_err());
    }
}
