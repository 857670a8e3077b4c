//! What a venue declares, as the governor wants it.

use catchment_governor::{Family, Limits, LimitsError};
use catchment_venues::{Opened, VenueSpec};

/// The limits of a venue's families. `safety` is the share of every limit that is used.
pub fn limits_of(spec: &VenueSpec, opened: &Opened, safety: f64) -> Result<Limits, LimitsError> {
    Limits::new(families_of(spec, opened), safety)
}

/// The families of a venue: those it declares limits for, and those its adapter uses besides, which have only what is
/// learned.
pub fn families_of(spec: &VenueSpec, opened: &Opened) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for limit in spec.limits {
        match families.iter_mut().find(|family| family.name == limit.family) {
            // Several windows of one family.
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
    for name in used_by(opened) {
        if families.iter().all(|family| family.name != name) {
            families.push(Family::top(name));
        }
    }
    families
}

/// Asks the adapter for a request of each kind that it makes; nothing is sent.
fn used_by(opened: &Opened) -> Vec<&'static str> {
    let mut used = Vec::new();
    used.extend(opened.discovers.iter().filter_map(|venue| Some(venue.walk().next_request()?.family)));
    if let Some(polls) = &opened.polls {
        used.push(polls.books_request(&["a"]).family);
        if polls.books_max() > 1 {
            used.push(polls.books_request(&["a", "b"]).family);
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_of_every_venue_has_a_family() {
        for spec in catchment_venues::VENUES {
            let opened = (spec.open)(&spec.endpoints([]).unwrap());
            let limits = limits_of(spec, &opened, 0.95).unwrap();
            for name in used_by(&opened) {
                assert!(limits.family(name).is_some(), "{} does not know {name}", spec.id);
            }
            assert_eq!(limits.windows().len(), spec.limits.len(), "{}", spec.id);
        }
    }
}
