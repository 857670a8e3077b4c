//! Descriptors: frames recorded and made up, commands, and descriptors that are wrong.

#![allow(clippy::unwrap_used)] // helpers of tests may panic as tests do

mod binance;
mod commands;
mod samples;
mod venues;
mod wrong;

use catchment_venues::stream::{Data, Descriptor, Event, Reader, Wanted};

fn descriptor(id: &str) -> Descriptor {
    Descriptor::find(id).unwrap_or_else(|| panic!("{id} ships"))
}

/// All these channels of all these instruments.
fn wanted(descriptor: &Descriptor, channels: &[&str], symbols: &[&str]) -> Vec<Wanted> {
    let pairs = channels.iter().flat_map(|channel| symbols.iter().map(move |symbol| (channel, symbol)));
    pairs.map(|(channel, symbol)| descriptor.want(channel, symbol).unwrap()).collect()
}

/// The only event of a frame.
fn only<'m>(reader: &mut Reader, frame: &'m str) -> Event<'m> {
    let mut events = Vec::new();
    reader.read(frame.as_bytes(), &mut events);
    assert_eq!(events.len(), 1, "{frame}: {events:?}");
    events.remove(0)
}

/// The only message of a frame.
fn data<'m>(reader: &mut Reader, frame: &'m str) -> Data<'m> {
    match only(reader, frame) {
        Event::Data(data) => data,
        event => panic!("{frame}: {event:?}"),
    }
}
