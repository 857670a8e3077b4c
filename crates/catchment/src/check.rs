//! `catchment check`: the configuration, without touching anything.

use serde_json::json;

use crate::DONE;
use crate::config::Config;

pub(crate) fn run(config: &Config, json: bool) -> anyhow::Result<u8> {
    let sinks: Vec<&str> = config.sinks.iter().map(|sink| sink.name.as_str()).collect();
    if json {
        let report = json!({
            "ok": true,
            "data_dir": config.data_dir,
            "spool": config.spool_enabled.then_some(&config.spool.dir),
            "sinks": sinks,
        });
        println!("{report}");
        return Ok(DONE);
    }
    println!("the configuration is good");
    println!("  archive  {}", config.data_dir.display());
    match config.spool_enabled {
        true => println!(
            "  spool    {}, at most {} MiB",
            config.spool.dir.display(),
            config.spool.total_bytes_max >> 20
        ),
        false => println!("  spool    off: what is not delivered when the process ends is lost"),
    }
    println!("  sinks    {}", sinks.join(", "));
    Ok(DONE)
}
