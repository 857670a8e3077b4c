//! What a described venue declares, as the governor wants it.

use catchment_governor::Family;
use catchment_venues::stream::Descriptor;

use super::connects_family;

/// The families of a venue: those of its REST requests, and one for the attempts to connect to each socket.
pub fn families_of(descriptor: &Descriptor) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for limit in descriptor.limits() {
        match families.iter_mut().find(|family| family.name == limit.family) {
            Some(family) => *family = family.clone().limit(limit.budget, limit.window),
            None => {
                let family = match limit.parent {
                    Some(parent) => Family::under(parent, limit.family),
                    None => Family::top(limit.family),
                };
                families.push(family.limit(limit.budget, limit.window));
            }
        }
    }
    for (at, socket) in descriptor.sockets().iter().enumerate() {
        let connects = socket.rules.connects;
        families.push(Family::top(connects_family(descriptor, at)).limit(connects.count, connects.window));
    }
    families
}
