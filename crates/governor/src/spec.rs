//! Declared limits as data: families of endpoints, nested, each with as many windows as the venue publishes.
//!
//! A request pays in the windows of its family and of every family above it. Polymarket, for example, counts a `/books`
//! request in three of them:
//!
//! ```
//! use std::time::Duration;
//! use catchment_governor::{Family, Limit, Limits};
//!
//! let ten = Duration::from_secs(10);
//! let limits = Limits::new(
//!     [
//!         Family::top("all").limit(15_000, ten),
//!         Family::under("all", "clob").limit(9_000, ten),
//!         Family::under("clob", "books").limit(500, ten),
//!     ],
//!     0.95,
//! )?;
//! let books = limits.family("books").unwrap();
//! assert_eq!(limits.windows_of(books).map(|window| window.allowed).collect::<Vec<_>>(), [475, 8_550, 14_250]);
//! # Ok::<(), catchment_governor::LimitsError>(())
//! ```

use std::borrow::Cow;
use std::time::Duration;

/// At most so much in every interval of this length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// How much: requests, or weight where the venue weighs them.
    pub cost: u32,
    /// In every interval of this length.
    pub window: Duration,
}

/// Endpoints that a venue counts together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// Its name, unique within the venue.
    pub name: Cow<'static, str>,
    /// The family in which its requests count as well.
    pub parent: Option<Cow<'static, str>>,
    /// What the venue publishes for it; none is fine.
    pub limits: Vec<Limit>,
}

impl Family {
    /// A family that is in no other.
    pub fn top(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), parent: None, limits: Vec::new() }
    }

    /// A family whose requests count in `parent`, too.
    pub fn under(parent: impl Into<Cow<'static, str>>, name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), parent: Some(parent.into()), limits: Vec::new() }
    }

    /// With one more limit.
    #[must_use]
    pub fn limit(mut self, cost: u32, window: Duration) -> Self {
        self.limits.push(Limit { cost, window });
        self
    }
}

/// The families of one venue, checked, and which windows a request of each pays in.
#[derive(Debug, Clone)]
pub struct Limits {
    families: Vec<Node>,
    windows: Vec<WindowSpec>,
}

/// A family, found by its name once; cheap to carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FamilyId(u16);

/// A window as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSpec {
    /// What the venue publishes.
    pub declared: u32,
    /// What is let through: the declared limit times the safety factor.
    pub allowed: u32,
    /// In every interval of this length.
    pub length: Duration,
}

#[derive(Debug, Clone)]
struct Node {
    name: Cow<'static, str>,
    /// Places in `Limits::windows`, the family's own first, those of the top last.
    path: Vec<usize>,
}

/// What is wrong with declared limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// There is nothing to limit.
    #[error("a venue needs at least one family")]
    Empty,
    /// Two families have one name.
    #[error("family {0:?} is declared twice")]
    Twice(String),
    /// The parent comes later, or never. Parents come first, so there are no circles.
    #[error("family {family:?} is under {parent:?}, which is not declared before it")]
    Parent {
        /// The family.
        family: String,
        /// What it names as its parent.
        parent: String,
    },
    /// A limit of nothing, or over no time.
    #[error("family {0:?} has a limit of zero, or a window of zero length")]
    Zero(String),
    /// Not above zero and at most one.
    #[error("the safety factor must be above 0 and at most 1")]
    Safety,
    /// More than can be kept apart.
    #[error("at most {} windows and {} families a venue", Limits::WINDOWS_MAX, Limits::FAMILIES_MAX)]
    TooMany,
}

impl Limits {
    /// So many windows a venue may have.
    pub const WINDOWS_MAX: usize = 64;
    /// So many families a venue may have.
    pub const FAMILIES_MAX: usize = 1_024;

    /// Checks the families. Parents come before their children. `safety` is the share of every limit that is used.
    pub fn new(families: impl IntoIterator<Item = Family>, safety: f64) -> Result<Self, LimitsError> {
        if !(safety > 0.0 && safety <= 1.0) {
            return Err(LimitsError::Safety);
        }
        let mut limits = Self { families: Vec::new(), windows: Vec::new() };
        for family in families {
            limits.add(family, safety)?;
        }
        if limits.families.is_empty() {
            return Err(LimitsError::Empty);
        }
        if limits.windows.len() > Self::WINDOWS_MAX || limits.families.len() > Self::FAMILIES_MAX {
            return Err(LimitsError::TooMany);
        }
        Ok(limits)
    }

    /// The family of that name.
    pub fn family(&self, name: &str) -> Option<FamilyId> {
        let at = self.families.iter().position(|family| family.name == name)?;
        Some(FamilyId(u16::try_from(at).expect("there are at most FAMILIES_MAX")))
    }

    /// Every family, parents first.
    pub fn families(&self) -> impl Iterator<Item = FamilyId> {
        (0..self.families.len())
            .map(|at| FamilyId(u16::try_from(at).expect("there are at most FAMILIES_MAX")))
    }

    /// What it is called.
    pub fn name(&self, family: FamilyId) -> &str {
        &self.families[family.at()].name
    }

    /// The windows a request of this family pays in, its own first.
    pub fn windows_of(&self, family: FamilyId) -> impl Iterator<Item = WindowSpec> {
        self.path(family).iter().map(|window| self.windows[*window])
    }

    /// Every window of the venue.
    pub fn windows(&self) -> &[WindowSpec] {
        &self.windows
    }

    /// The places in [`Limits::windows`] that a request of this family pays in, its own first.
    #[inline]
    pub fn path(&self, family: FamilyId) -> &[usize] {
        &self.families[family.at()].path
    }

    fn add(&mut self, family: Family, safety: f64) -> Result<(), LimitsError> {
        let Family { name, parent, limits } = family;
        if self.family(&name).is_some() {
            return Err(LimitsError::Twice(name.into_owned()));
        }
        let above = match parent {
            None => Vec::new(),
            Some(parent) => match self.family(&parent) {
                Some(parent) => self.path(parent).to_vec(),
                None => {
                    return Err(LimitsError::Parent {
                        family: name.into_owned(),
                        parent: parent.into_owned(),
                    });
                }
            },
        };
        let mut path = Vec::new();
        for Limit { cost, window } in limits {
            if cost == 0 || window.is_zero() {
                return Err(LimitsError::Zero(name.into_owned()));
            }
            path.push(self.windows.len());
            // A tenth of a millionth, so that 0.95 × 500 is 475 and not 474.999….
            let allowed = ((f64::from(cost) * safety + 1e-7) as u32).clamp(1, cost);
            self.windows.push(WindowSpec { declared: cost, allowed, length: window });
        }
        path.extend(above);
        self.families.push(Node { name, path });
        Ok(())
    }
}

impl FamilyId {
    #[inline]
    pub(crate) fn new(at: u16) -> Self {
        Self(at)
    }

    /// Its place among the venue's families.
    #[inline]
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_wrong_is_named() {
        let check = |families: Vec<Family>, safety, wrong| {
            assert_eq!(Limits::new(families, safety).unwrap_err(), wrong);
        };
        check(vec![], 0.95, LimitsError::Empty);
        check(vec![Family::top("a"), Family::top("a")], 0.95, LimitsError::Twice("a".into()));
        let orphan = LimitsError::Parent { family: "a".into(), parent: "b".into() };
        check(vec![Family::under("b", "a"), Family::top("b")], 0.95, orphan);
        check(vec![Family::top("a").limit(0, SECOND)], 0.95, LimitsError::Zero("a".into()));
        check(vec![Family::top("a").limit(1, Duration::ZERO)], 0.95, LimitsError::Zero("a".into()));
        for safety in [0.0, -1.0, 1.01, f64::NAN] {
            check(vec![Family::top("a")], safety, LimitsError::Safety);
        }
        let many = (0..65).fold(Family::top("a"), |family, _| family.limit(1, SECOND));
        check(vec![many], 0.95, LimitsError::TooMany);
    }

    #[test]
    fn the_safety_factor_leaves_at_least_one() {
        let limits = Limits::new([Family::top("a").limit(1, SECOND).limit(20, SECOND)], 0.95).unwrap();
        let allowed: Vec<u32> = limits.windows().iter().map(|window| window.allowed).collect();
        assert_eq!(allowed, [1, 19]);
    }
}
