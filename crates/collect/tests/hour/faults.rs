//! The fault hour: a thousand faults of all kinds at six venues in an hour. What is told is what went wrong, and
//! everything else is stored once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catchment_collect::stream::StreamStatus;
use catchment_sim::{Sim, StreamFault, StreamFaultKind as Kind};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::is_long;
use crate::verdict::{self, Verdict};
use crate::world::{self, VENUES, World};

const CHANNELS: [&str; 3] = ["trades", "book_delta", "ticker"];
const SYMBOLS: usize = 3;

/// What can go wrong, in the order in which it does.
const KINDS: [Kind; 21] = [
    Kind::Gap,
    Kind::Cut,
    Kind::Duplicate,
    Kind::Truncated,
    Kind::Reset,
    Kind::WrongChecksum,
    Kind::Reorder,
    Kind::Close,
    Kind::Binary,
    Kind::Mute,
    Kind::NotUtf8,
    Kind::Torn,
    Kind::Restart,
    Kind::Freeze,
    Kind::TickSize,
    Kind::Oversized,
    Kind::Notice,
    Kind::Refuse,
    Kind::Deaf,
    Kind::SilentAck,
    Kind::Trickle,
];

/// The channels of a venue on which this can be noticed at all; nothing if the venue cannot do it.
///
/// A message that is simply not sent, or sent twice, shows in the venue's numbers, ids or checksums. Where there are
/// none (tickers mostly), nobody can know, and it is not tried.
fn channels(venue: &str, kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Gap | Kind::Truncated | Kind::NotUtf8 | Kind::Reorder => match venue {
            "binance" | "kraken" => &["trades", "book_delta"],
            "coinbase" => &["trades"],
            "okx" | "bybit" => &["book_delta"],
            _ if matches!(kind, Kind::Truncated | Kind::NotUtf8) => &["book_delta"],
            _ => &[],
        },
        Kind::Duplicate => match venue {
            "binance" => &["trades", "book_delta", "ticker"],
            "coinbase" | "kraken" => &["trades"],
            "okx" | "bybit" => &["trades", "book_delta"],
            _ => &[],
        },
        Kind::WrongChecksum => match venue {
            "kraken" | "okx" | "polymarket" => &["book_delta"],
            _ => &[],
        },
        Kind::Restart => {
            if matches!(venue, "okx" | "bybit") {
                &["book_delta"]
            } else {
                &[]
            }
        }
        Kind::TickSize => {
            if venue == "polymarket" {
                &["book_delta"]
            } else {
                &[]
            }
        }
        Kind::Notice => {
            if matches!(venue, "binance" | "okx") {
                &["*"]
            } else {
                &[]
            }
        }
        // Nothing is acknowledged there, and nothing refused.
        Kind::Refuse | Kind::SilentAck => {
            if venue == "polymarket" {
                &[]
            } else {
                &["*"]
            }
        }
        Kind::Mute => match venue {
            "polymarket" => &["book_delta"],
            _ => &["trades", "book_delta"],
        },
        Kind::Binary | Kind::Oversized | Kind::Torn => &["trades", "book_delta"],
        Kind::Cut | Kind::Reset | Kind::Close | Kind::Freeze | Kind::Deaf | Kind::Trickle => &["*"],
        Kind::Overflow => &[],
    }
}

/// What is asked of the simulation for one fault.
fn faults(venue: &str, kind: Kind, symbol: &str, rng: &mut StdRng) -> Vec<StreamFault> {
    let choices = channels(venue, kind);
    let channel = choices[rng.random_range(0..choices.len())];
    let fault = match channel {
        "*" => StreamFault::new(kind),
        channel => StreamFault::new(kind).on(symbol, channel),
    };
    match kind {
        Kind::Gap | Kind::Duplicate | Kind::Truncated | Kind::Binary => {
            vec![fault.times(rng.random_range(1..4))]
        }
        Kind::Oversized => vec![StreamFault { bytes: Some(oversized(venue)), ..fault }],
        Kind::Mute => vec![fault.for_ms(25_000)],
        Kind::Freeze => vec![fault.for_ms(30_000)],
        Kind::Deaf => vec![fault.for_ms(8_000)],
        Kind::Trickle => vec![StreamFault { bytes: Some(4_000), ..fault.for_ms(3_000) }],
        Kind::Notice => vec![fault.for_ms(30_000)],
        Kind::Refuse | Kind::SilentAck => {
            vec![fault.times(rng.random_range(1..3)), StreamFault::new(Kind::Cut)]
        }
        _ => vec![fault],
    }
}

/// Beyond what the venue's description allows; Coinbase's allows as much as a socket does at all.
fn oversized(venue: &str) -> u32 {
    let descriptor = catchment_venues::stream::Descriptor::find(venue).unwrap();
    u32::try_from(descriptor.sockets()[0].rules.frame_bytes_max.min(16 << 20)).unwrap() + 64
}

/// Lets everything on the list go wrong at a venue, each once the last is mended.
async fn torment(
    sim: Arc<Sim>,
    mut status: watch::Receiver<StreamStatus>,
    (venue, symbols): (&'static str, Vec<String>),
    kinds: Vec<Kind>,
    slot: Option<Duration>,
) -> BTreeMap<String, usize> {
    let mut rng = StdRng::seed_from_u64(kinds.len() as u64);
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    let began = Instant::now();
    for (at, kind) in kinds.into_iter().enumerate() {
        let all_well = world::is_well_within(&mut status, Duration::from_secs(240)).await;
        assert!(all_well, "{venue} is not mended before {kind:?}: {:#?}", status.borrow());
        sleep(Duration::from_millis(rng.random_range(500..2_500))).await;
        if let Some(slot) = slot {
            // Spread over the time there is.
            tokio::time::sleep_until(began + slot.mul_f64(at as f64)).await;
        }
        let symbol = &symbols[rng.random_range(0..symbols.len())];
        let mut ids = Vec::new();
        for fault in faults(venue, kind, symbol, &mut rng) {
            ids.push(sim.inject(venue, &fault).unwrap());
            *done.entry(format!("{:?}", fault.fault)).or_default() += 1;
        }
        let is_over = |sim: &Sim| {
            let log = sim.log();
            log.iter().filter(|e| e.venue == venue && ids.contains(&e.id)).all(|e| e.to_ms.is_some())
        };
        let over = async {
            while !is_over(&sim) {
                sleep(Duration::from_millis(250)).await;
            }
        };
        let struck = timeout(Duration::from_secs(120), over).await;
        assert!(struck.is_ok(), "{kind:?} did not strike at {venue}");
        // The figures are as old as this.
        sleep(Duration::from_millis(2_600)).await;
    }
    let all_well = world::is_well_within(&mut status, Duration::from_secs(240)).await;
    assert!(all_well, "{venue} is not mended: {:#?}", status.borrow());
    sleep(Duration::from_secs(3)).await;
    done
}

/// So many faults, dealt to the venues in turn.
fn deal(count: usize) -> BTreeMap<&'static str, Vec<Kind>> {
    let pairs = KINDS.iter().flat_map(|kind| VENUES.map(|venue| (venue, *kind)));
    let can: Vec<(&str, Kind)> = pairs.filter(|(venue, kind)| !channels(venue, *kind).is_empty()).collect();
    let mut dealt: BTreeMap<&'static str, Vec<Kind>> = BTreeMap::new();
    let mut left = count;
    for (venue, kind) in can.into_iter().cycle() {
        // These come with a cut of their own.
        left = left.saturating_sub(if matches!(kind, Kind::Refuse | Kind::SilentAck) { 2 } else { 1 });
        dealt.entry(VENUES.iter().find(|known| **known == venue).unwrap()).or_default().push(kind);
        if left == 0 {
            break;
        }
    }
    dealt
}

/// A simulated stretch of time with so many faults.
async fn suffer(count: usize, length: Duration) -> (Verdict, BTreeMap<String, usize>) {
    let mut world = World::start(world::config(SYMBOLS as u32, 0)).await;
    let tokens = world.tokens(SYMBOLS).await;
    let pairs: Vec<String> = ["BTC/USDT", "BTC/USD", "ETH/USDT"].map(str::to_owned).to_vec();
    let symbols_of = |venue: &str| if venue == "polymarket" { tokens.clone() } else { pairs.clone() };
    for venue in VENUES {
        let channels = if venue == "polymarket" { &CHANNELS[..2] } else { &CHANNELS[..] };
        world.record(venue, channels, &symbols_of(venue), world::settings());
    }
    let mut torments = Vec::new();
    for (venue, kinds) in deal(count) {
        let slot = (!length.is_zero()).then(|| length / kinds.len() as u32);
        let of = (venue, symbols_of(venue));
        torments.push(tokio::spawn(torment(Arc::clone(&world.sim), world.status(venue), of, kinds, slot)));
    }
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    for torment in torments {
        for (kind, times) in torment.await.unwrap() {
            *done.entry(kind).or_default() += times;
        }
    }
    let (sim, kepts, statuses) = world.finish().await;
    let verdict = verdict::judge(&sim, &kepts);
    let unread: u64 = statuses.iter().map(|(_, status)| status.counts.unknown).sum();
    eprintln!("frames of no use: {unread}");
    (verdict, done)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_faults_in_an_hour_are_told_exactly_and_all_else_is_stored_once() {
    let (count, length) = match is_long() {
        true => (1_000, Duration::from_secs(3_600)),
        false => (100, Duration::ZERO),
    };
    let began = Instant::now();
    let (verdict, done) = suffer(count, length).await;
    println!("{} of simulated time, {} faults", humane(began.elapsed()), done.values().sum::<usize>());
    done.iter().for_each(|(kind, times)| println!("  {kind:<14} {times:>4}"));
    println!("{verdict}");
    assert!(verdict.is_clean(), "{verdict:#}");
}

fn humane(time: Duration) -> String {
    format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60)
}
