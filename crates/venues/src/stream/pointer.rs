//! JSON pointers as a descriptor writes them: RFC 6901, and `-1` and `*` for arrays.

/// One step of a pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A member; or an element, where it is a number and the value an array.
    Key(String),
    /// An array's last element.
    Last,
    /// Every element.
    Every,
}

/// A pointer that has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pointer(pub(super) Vec<Step>);

impl Pointer {
    /// The longest pointer taken, in steps.
    const STEPS_MAX: usize = 8;

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!(
                "{text:?} is not a JSON pointer: it must begin with a slash, as in \"/data/u\""
            ));
        };
        let mut steps = Vec::new();
        for step in rest.split('/') {
            steps.push(match step {
                "" => return Err(format!("{text:?} has an empty step")),
                "-1" => Step::Last,
                "*" => Step::Every,
                _ => Step::Key(unescaped_step(text, step)?),
            });
        }
        if steps.len() > Self::STEPS_MAX {
            return Err(format!("{text:?} has more than {} steps", Self::STEPS_MAX));
        }
        Ok(Self(steps))
    }

    /// Whether it can name several values at once.
    pub(super) fn is_many(&self) -> bool {
        self.0.contains(&Step::Every)
    }
}

/// `~1` is a slash, `~0` a tilde.
fn unescaped_step(pointer: &str, step: &str) -> Result<String, String> {
    let mut key = String::with_capacity(step.len());
    let mut rest = step.chars();
    while let Some(c) = rest.next() {
        match c {
            '~' => match rest.next() {
                Some('0') => key.push('~'),
                Some('1') => key.push('/'),
                _ => return Err(format!("{pointer:?} has a '~' that is neither '~0' nor '~1'")),
            },
            c => key.push(c),
        }
    }
    Ok(key)
}
