//! The limiters side by side, at simulated venues with hidden limits.
//!
//! `cargo run --release -p catchment-governor --example limiters -- [--seed N] [--seeds N] [--model NAME] [--limiter NAME] [--json]`
//!
//! The same code as the tests run, and the same limiters as the recorder uses. The same seed prints the same bytes.

#[path = "../tests/venues/mod.rs"]
#[allow(dead_code)] // the tests use more of it
#[allow(unreachable_pub)] // so is a module of tests
mod venues;

use std::process::ExitCode;

use venues::models::{self, Model};
use venues::{Hour, Kind};

const USAGE: &str = "\
usage: limiters [--seed N] [--seeds N] [--model NAME] [--limiter NAME] [--json]

  --seed N        the first seed [default: 1]
  --seeds N       how many seeds; figures are means over them; worst, whole hour, 85 % in, bans and
                  Jain are those of the worst seed; refusals are those of one client [default: 3]
  --model NAME    only the model of this name; `tuned`, `unseen`, `held-out` and `second` are groups
  --limiter NAME  only the limiter of this name: pace, pace warm, aimd, fixed
  --json          one JSON object a line";

const KINDS: [Kind; 4] = [Kind::Pace, Kind::PaceWarm, Kind::Aimd, Kind::Fixed];

struct Options {
    seed: u64,
    seeds: u64,
    model: Option<String>,
    limiter: Option<String>,
    json: bool,
}

fn main() -> ExitCode {
    let options = match read_options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("{wrong}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let groups = [
        ("tuned", "tuned on", models::TUNED),
        ("unseen", "not tuned on, though mended for some", models::UNSEEN),
        ("held-out", "never changed for", models::HELD_OUT),
        ("second", "not tuned on, of other kinds", models::SECOND),
    ];
    let mut found = false;
    for (group, title, models) in groups {
        let is_asked =
            |model: &&Model| options.model.as_deref().is_none_or(|name| name == model.name || name == group);
        let asked: Vec<&Model> = models.iter().filter(is_asked).collect();
        if !asked.is_empty() {
            found = true;
            print_group(title, &asked, &options);
        }
    }
    if !found {
        eprintln!("no model is called that; the models are:");
        models::all().for_each(|model| eprintln!("  {:<18} {}", model.name, model.about));
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}

fn print_group(title: &str, models: &[&Model], options: &Options) {
    if !options.json {
        println!(
            "Models the limiter was {title}; one simulated hour, seeds {}..={}\n",
            options.seed,
            options.seed + options.seeds - 1
        );
        println!(
            "{:<18} {:<10} {:>6} {:>10} {:>6} {:>10} {:>9} {:>5} {:>8} {:>6}",
            "model", "limiter", "used", "refusals/h", "worst", "whole hour", "85 % in", "bans", "p99", "Jain"
        );
    }
    for model in models {
        let is_asked = |kind: &Kind| options.limiter.as_deref().is_none_or(|name| name == kind.name());
        for kind in KINDS.into_iter().filter(is_asked) {
            let figures = Figures::of(model, kind, options);
            if options.json { figures.print_json(model, kind) } else { figures.print_row(model, kind) }
        }
    }
    if !options.json {
        println!();
        models.iter().for_each(|model| println!("{:<18} {}", model.name, model.about));
        println!();
    }
}

/// One row: means over the seeds, and the worst of what must not happen. Refusals are those of one client.
struct Figures {
    used: f64,
    refusals_late: f64,
    refusals_late_worst: f64,
    refusals: f64,
    reached_s: Option<usize>,
    bans: u64,
    latency_ms_p99: f64,
    jain: f64,
}

impl Figures {
    fn of(model: &Model, kind: Kind, options: &Options) -> Self {
        let hours: Vec<Hour> =
            (options.seed..options.seed + options.seeds).map(|seed| venues::run(model, kind, seed)).collect();
        let clients = f64::from(model.clients);
        let mean = |of: fn(&Hour) -> f64| hours.iter().map(of).sum::<f64>() / hours.len() as f64;
        let worst = |of: fn(&Hour) -> u64| hours.iter().map(of).max().unwrap_or_default();
        let reached: Option<Vec<usize>> = hours.iter().map(|hour| hour.reached_s).collect();
        Self {
            used: mean(|hour| hour.used),
            refusals_late: mean(|hour| hour.refusals_late as f64) / clients,
            refusals_late_worst: worst(|hour| hour.refusals_late) as f64 / clients,
            refusals: worst(|hour| hour.refusals) as f64 / clients,
            reached_s: reached.and_then(|reached| reached.into_iter().max()),
            bans: worst(|hour| hour.bans),
            latency_ms_p99: mean(|hour| hour.latency_ms_p99),
            jain: hours.iter().map(|hour| hour.jain).fold(1.0, f64::min),
        }
    }

    fn print_row(&self, model: &Model, kind: Kind) {
        let reached = self.reached_s.map_or("never".to_owned(), |s| format!("{s} s"));
        let jain = if model.clients > 1 { format!("{:.3}", self.jain) } else { String::new() };
        println!(
            "{:<18} {:<10} {:>6.3} {:>10.1} {:>6.0} {:>10.0} {:>9} {:>5} {:>5.0} ms {:>6}",
            model.name,
            kind.name(),
            self.used,
            self.refusals_late,
            self.refusals_late_worst,
            self.refusals,
            reached,
            self.bans,
            self.latency_ms_p99,
            jain
        );
    }

    fn print_json(&self, model: &Model, kind: Kind) {
        let reached = self.reached_s.map_or("null".to_owned(), |s| s.to_string());
        println!(
            r#"{{"model":"{}","limiter":"{}","used":{:.4},"refusals_late_per_h":{:.2},"refusals_late_per_h_worst":{:.2},"refusals":{:.2},"reached_s":{reached},"bans":{},"latency_ms_p99":{:.1},"jain":{:.4}}}"#,
            model.name,
            kind.name(),
            self.used,
            self.refusals_late,
            self.refusals_late_worst,
            self.refusals,
            self.bans,
            self.latency_ms_p99,
            self.jain
        );
    }
}

fn read_options() -> Result<Option<Options>, String> {
    let mut options = Options { seed: 1, seeds: 3, model: None, limiter: None, json: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64, String> {
            let text = words.next().ok_or(format!("{word} needs a number"))?;
            text.parse().map_err(|_| format!("{text:?} is not a number"))
        };
        match word.as_str() {
            "--seed" => options.seed = number()?,
            "--seeds" => options.seeds = number()?.max(1),
            "--model" => options.model = Some(words.next().ok_or("--model needs a name")?),
            "--limiter" => options.limiter = Some(words.next().ok_or("--limiter needs a name")?),
            "--json" => options.json = true,
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("{word:?} is not an option")),
        }
    }
    Ok(Some(options))
}
