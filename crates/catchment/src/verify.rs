//! `catchment verify DIR`: the archive, re-read.

use catchment_sinks::{Options, Report, StreamRows, verify};

use crate::cli::VerifyArgs;
use crate::summary::Progress;
use crate::{DONE, WANTING};

pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<u8> {
    let progress = Progress::start("verify");
    let report = verify(&args.dir, Options::default(), &|at| {
        let (done, all) = (at.bytes_done / 1_000_000, at.bytes / 1_000_000);
        progress.show(&format!("{} of {} files, {done} of {all} MB", at.files_done, at.files));
    })?;
    progress.finish();
    if args.json {
        tell!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report);
    }
    Ok(if report.problems_total == 0 { DONE } else { WANTING })
}

fn print(report: &Report) {
    for problem in &report.problems {
        tell!("{problem}");
    }
    let untold = report.problems_total - report.problems.len() as u64;
    if untold > 0 {
        tell!("… and {untold} more");
    }
    let width = |text: fn(&StreamRows) -> String| {
        report.streams.iter().map(|stream| text(stream).len()).max().unwrap_or(0)
    };
    let (venue, channel) = (width(|s| s.venue.to_string()), width(|s| s.channel.to_string()));
    for stream in &report.streams {
        tell!("{:<venue$}  {:<channel$}  {:>12} rows", stream.venue, stream.channel, stream.rows);
    }
    tell!(
        "{} rows in {} files ({} sealed, {} open), {} MB, {} gaps: {}",
        report.rows,
        report.files,
        report.sealed_files,
        report.open_files,
        report.bytes / 1_000_000,
        report.gaps,
        match report.problems_total {
            0 => "nothing wrong".to_owned(),
            1 => "1 problem".to_owned(),
            n => format!("{n} problems"),
        }
    );
}
