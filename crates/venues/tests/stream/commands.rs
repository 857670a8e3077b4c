//! Commands and shards keep within what each venue takes.

use std::collections::BTreeSet;

use catchment_venues::stream::{Descriptor, Wanted};

use crate::descriptor;

/// All public channels of so many instruments on one socket.
fn many(descriptor: &Descriptor, socket: usize, count: usize) -> Vec<Wanted> {
    let mut all = Vec::new();
    for channel in descriptor.channels().iter().filter(|channel| channel.socket == socket) {
        for n in 0..count {
            let symbol =
                if descriptor.id() == "polymarket" { format!("{n:078}") } else { format!("COIN{n}/USDT") };
            all.push(descriptor.want(channel.name.as_str(), &symbol).unwrap());
        }
    }
    all
}

#[test]
fn every_command_is_json_within_the_limits_and_nothing_is_left_out() {
    for descriptor in Descriptor::shipped() {
        for (index, socket) in descriptor.sockets().iter().enumerate() {
            let all = many(descriptor, index, 700);
            let mut covered = BTreeSet::new();
            let mut number = 0;
            for (shard_number, shard) in descriptor.shard(index, &all).into_iter().enumerate() {
                let table: Vec<Wanted> = shard.iter().map(|n| all[*n as usize].clone()).collect();
                number = 0;
                let commands = descriptor.subscribe(index, &table, &mut number);
                assert_eq!(commands.len() as u64, number);
                let args: usize = commands.iter().map(|command| args(&command.text)).sum();
                assert!(args <= socket.rules.subscriptions_max, "{} {args}", descriptor.id());
                let mut here: BTreeSet<u32> = BTreeSet::new();
                for command in &commands {
                    serde_json::from_str::<serde_json::Value>(&command.text).unwrap();
                    assert!(command.text.len() <= socket.rules.request_bytes_max, "{}", command.text);
                    let count = self::args(&command.text);
                    assert!((1..=socket.rules.args_per_request).contains(&count), "{}", command.text);
                    for n in &command.covers {
                        assert!(here.insert(*n), "asked for twice");
                    }
                }
                // What comes without being asked for is in no command.
                let asked = table.iter().filter(|w| !descriptor.channels()[w.channel].comes_unasked).count();
                assert_eq!(here.len(), asked, "{} shard {shard_number}", descriptor.id());
                covered.extend(shard);
                if let Some(max) = socket.rules.args_bytes_max {
                    assert!(
                        commands.iter().map(|command| command.text.len()).sum::<usize>()
                            < max + 100 * commands.len()
                    );
                }
                let unsubscribed = descriptor.unsubscribe(index, &table, &mut number);
                let covers: usize = unsubscribed.iter().map(|command| command.covers.len()).sum();
                assert_eq!(covers, asked);
            }
            assert_eq!(covered.len(), all.len(), "{} {}", descriptor.id(), socket.name);
            assert!(number > 0);
        }
    }
}

/// How many subscriptions a command names: the elements of its longest list of arguments.
fn args(command: &str) -> usize {
    let value: serde_json::Value = serde_json::from_str(command).unwrap();
    let lists = ["/params", "/args", "/assets_ids", "/product_ids", "/params/symbol"];
    lists.iter().filter_map(|at| value.pointer(at)?.as_array()).map(Vec::len).max().unwrap()
}

#[test]
fn shards_are_as_large_as_the_venue_allows() {
    let check = |id: &str, channel: &str, count: usize, want: &[usize]| {
        let descriptor = descriptor(id);
        let all: Vec<Wanted> =
            (0..count).map(|n| descriptor.want(channel, &format!("COIN{n:04}/USDT")).unwrap()).collect();
        let socket = descriptor.channels()[descriptor.channel(channel).unwrap()].socket;
        let sizes: Vec<usize> = descriptor.shard(socket, &all).iter().map(Vec::len).collect();
        assert_eq!(sizes, want, "{id} {channel}");
    };
    check("binance", "trades", 1_024, &[1_024]);
    check("binance", "trades", 1_025, &[1_024, 1]);
    check("okx", "trades", 200, &[90, 90, 20]);
    check("bybit", "trades", 0, &[]);
    // 26 characters each with their quotes: 21,000 hold 807, and 500 is the cap.
    check("bybit", "trades", 501, &[500, 1]);
}

#[test]
fn what_does_not_exist_is_said() {
    let binance = descriptor("binance");
    let error = binance.want("trade", "BTC/USDT").unwrap_err().to_string();
    assert!(error.starts_with("binance has no channel \"trade\"; it has agg_trades, book_delta,"), "{error}");
    let error = binance.want("trades", "BTC/").unwrap_err().to_string();
    assert!(error.contains("\"BTC/\" is not an instrument of binance"), "{error}");
    let error = binance.endpoints([("ws", "ws://localhost:1")]).unwrap_err().to_string();
    assert_eq!(error, "venues.binance.endpoints.ws does not exist; binance has rest, stream");
}
