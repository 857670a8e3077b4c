//! `[[streams]]` and `descriptors_dir`: what is recorded as venues send it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::time::Duration;

use catchment_model::UnixMs;
use catchment_venues::Endpoints;
use catchment_venues::stream::{Descriptor, NamingError, Secrets, Wanted};
use serde::{Deserialize, Serialize};

use super::venues::{Speed, VenueToml};
use super::{ConfigError, between};

/// A venue whose streams are recorded, checked: all blocks of `[[streams]]` that name it.
#[derive(Clone)]
pub(crate) struct StreamConfig {
    pub(crate) descriptor: Descriptor,
    pub(crate) endpoints: Endpoints,
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) keeps_books: bool,
    pub(crate) snapshot_interval: Duration,
    pub(crate) snapshot_depth: usize,
    pub(crate) speed: Speed,
    /// For channels that want a login.
    pub(crate) secrets: Option<Secrets>,
    /// For `bench ws-pipe`; not a key of the file.
    pub(crate) through_values: bool,
}

impl std::fmt::Debug for StreamConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamConfig")
            .field("id", &self.descriptor.id())
            .field("wanted", &self.wanted.len())
            .finish_non_exhaustive()
    }
}

impl StreamConfig {
    /// These streams, all else as it is without a word of the user.
    pub(crate) fn of(
        descriptor: Descriptor,
        endpoints: Endpoints,
        wanted: Vec<Wanted>,
    ) -> Result<Self, ConfigError> {
        let usual = StreamToml::default();
        Ok(Self {
            speed: VenueToml::default().speed(descriptor.id())?,
            descriptor,
            endpoints,
            wanted,
            keeps_books: usual.books,
            snapshot_interval: Duration::from_secs(usual.snapshot_interval_s),
            snapshot_depth: usual.snapshot_depth as usize,
            secrets: None,
            through_values: false,
        })
    }
}

/// One `[[streams]]` as the user writes it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StreamToml {
    venue: String,
    symbols: Vec<String>,
    channels: Vec<String>,
    books: bool,
    snapshot_interval_s: u64,
    snapshot_depth: u64,
}

impl Default for StreamToml {
    fn default() -> Self {
        Self {
            venue: "binance".to_owned(),
            symbols: vec!["BTC/USDT".to_owned()],
            channels: vec!["trades".to_owned(), "book_delta".to_owned()],
            books: true,
            snapshot_interval_s: 60,
            snapshot_depth: 5_000,
        }
    }
}

/// The venues that can be streamed: those of this build, and those described in a folder.
pub(crate) struct Described(Vec<Descriptor>);

impl Described {
    /// Those of this build alone.
    pub(crate) fn shipped() -> Self {
        Self(Descriptor::shipped().to_vec())
    }

    /// With those described in a folder, `*.toml` each; one that has the name of a shipped one takes its place.
    pub(crate) fn with_folder(dir: &Path) -> Result<Self, ConfigError> {
        let cannot = |path: &Path, error: &dyn std::fmt::Display| {
            ConfigError::at(
                "descriptors_dir",
                format!("holds {}, which cannot be used: {error}", path.display()),
            )
        };
        let listed = std::fs::read_dir(dir).map_err(|error| {
            ConfigError::at("descriptors_dir", format!("is {}, which cannot be read: {error}", dir.display()))
        })?;
        let mut files: Vec<PathBuf> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        files.sort();
        let mut all = Self::shipped().0;
        let mut own: BTreeMap<String, PathBuf> = BTreeMap::new();
        for path in files {
            let text = std::fs::read_to_string(&path).map_err(|error| cannot(&path, &error))?;
            let read = Descriptor::read(&path.display().to_string(), &text);
            let descriptor = read.map_err(|error| cannot(&path, &error))?;
            if let Some(other) = own.insert(descriptor.id().to_owned(), path.clone()) {
                let both = format!("its id {:?} is also that of {}", descriptor.id(), other.display());
                return Err(cannot(&path, &both));
            }
            all.retain(|other| other.id() != descriptor.id());
            all.push(descriptor);
        }
        Ok(Self(all))
    }

    pub(crate) fn find(&self, id: &str) -> Option<&Descriptor> {
        self.0.iter().find(|descriptor| descriptor.id() == id)
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Descriptor] {
        &self.0
    }

    pub(super) fn names(&self) -> String {
        self.0.iter().map(Descriptor::id).collect::<Vec<_>>().join(", ")
    }
}

/// All `[[streams]]`, by venue. `venues` are the `[venues.<id>]` that concern them.
pub(super) fn check(
    blocks: Vec<StreamToml>,
    described: &Described,
    venues: &BTreeMap<String, VenueToml>,
) -> Result<Vec<StreamConfig>, ConfigError> {
    let mut checked: Vec<StreamConfig> = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        let key = |name: &str| format!("streams[{at}].{name}");
        let Some(descriptor) = described.find(&block.venue) else {
            let problem = format!(
                "is {:?}, which is no venue that streams; there is {}",
                block.venue,
                described.names()
            );
            return Err(ConfigError::at(key("venue"), problem));
        };
        for (name, list) in [("symbols", &block.symbols), ("channels", &block.channels)] {
            if list.is_empty() {
                return Err(ConfigError::at(key(name), "is empty: nothing would be recorded"));
            }
        }
        let interval = between(key("snapshot_interval_s"), block.snapshot_interval_s, 1, 86_400)?;
        let interval = Duration::from_secs(interval);
        let depth = between(key("snapshot_depth"), block.snapshot_depth, 1, 100_000)? as usize;
        let wanted = wanted(descriptor, &block, &key)?;
        match checked.iter_mut().find(|known| known.descriptor.id() == descriptor.id()) {
            Some(known) => {
                known.wanted.extend(wanted);
                known.keeps_books |= block.books;
                known.snapshot_interval = known.snapshot_interval.min(interval);
                known.snapshot_depth = known.snapshot_depth.max(depth);
            }
            None => {
                let venue = venues.get(&block.venue);
                let overrides = venue.map(|venue| venue.endpoints_for(descriptor)).unwrap_or_default();
                let endpoints = descriptor.endpoints(overrides);
                let speed = match venue {
                    Some(venue) => venue.speed(&block.venue)?,
                    None => VenueToml::default().speed(&block.venue)?,
                };
                checked.push(StreamConfig {
                    descriptor: descriptor.clone(),
                    endpoints: endpoints.map_err(|error| ConfigError::whole(error.to_string()))?,
                    wanted,
                    keeps_books: block.books,
                    snapshot_interval: interval,
                    snapshot_depth: depth,
                    speed,
                    secrets: None,
                    through_values: false,
                });
            }
        }
    }
    for streams in &mut checked {
        streams.wanted = each_once(std::mem::take(&mut streams.wanted), &streams.descriptor)?;
        streams.secrets = secrets(streams, venues)?;
    }
    Ok(checked)
}

/// What is named twice is recorded once. Two names for what the venue sends once are one too many: the venue has one stream.
fn each_once(wanted: Vec<Wanted>, descriptor: &Descriptor) -> Result<Vec<Wanted>, ConfigError> {
    let mut once: BTreeMap<(usize, String), Wanted> = BTreeMap::new();
    let mut kept = Vec::with_capacity(wanted.len());
    for one in wanted {
        match once.entry((one.channel, one.instrument.subscribe.to_string())) {
            Entry::Vacant(vacant) => {
                vacant.insert(one.clone());
                kept.push(one);
            }
            Entry::Occupied(other) if other.get().instrument.symbol == one.instrument.symbol => {}
            Entry::Occupied(other) => {
                let (a, b) = (&other.get().instrument.symbol, &one.instrument.symbol);
                let venue = descriptor.id();
                return Err(ConfigError::at(
                    "streams.symbols",
                    format!("name one instrument of {venue} in two ways, {a} and {b}; leave one of them out"),
                ));
            }
        }
    }
    Ok(kept)
}

/// Who we are to the venue, if anything of it is for us alone. That a login can be made of it is tried here.
fn secrets(
    streams: &StreamConfig,
    venues: &BTreeMap<String, VenueToml>,
) -> Result<Option<Secrets>, ConfigError> {
    let descriptor = &streams.descriptor;
    let channels = streams.wanted.iter().map(|wanted| &descriptor.channels()[wanted.channel]);
    if !channels.clone().any(|channel| descriptor.sockets()[channel.socket].needs_login()) {
        return Ok(None);
    }
    let id = descriptor.id();
    let secrets = match venues.get(id) {
        Some(venue) => venue.login.read(id)?,
        None => Secrets::default(),
    };
    for channel in channels {
        let tried =
            descriptor.login(channel.socket, &secrets, UnixMs::new(0).expect("1970 is a time"), &mut 0);
        tried.map_err(|error| {
            let problem = format!("is needed for {:?}: {error}", channel.name.as_str());
            ConfigError::at(format!("venues.{id}.login"), problem)
        })?;
    }
    Ok(Some(secrets))
}

fn wanted(
    descriptor: &Descriptor,
    block: &StreamToml,
    key: &dyn Fn(&str) -> String,
) -> Result<Vec<Wanted>, ConfigError> {
    let mut wanted = Vec::new();
    for symbol in &block.symbols {
        for channel in &block.channels {
            let one = descriptor.want(channel, symbol).map_err(|error| {
                let name = if matches!(error, NamingError::Channel { .. }) { "channels" } else { "symbols" };
                ConfigError::at(key(name), format!("is wrong: {error}"))
            })?;
            wanted.push(one);
        }
    }
    Ok(wanted)
}
