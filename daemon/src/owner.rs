//! The user for whom a step runs.

/// The user of a step's job: a uid, and its name on the head's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) name: String,
}

impl Owner {
    /// Parses `1000:ann`, as the daemon writes it.
    pub(crate) fn parse(text: &str) -> Result<Owner, &'static str> {
        let parsed = text.split_once(':').and_then(|(uid, name)| Some((uid.parse().ok()?, name.to_owned())));
        parsed.map(|(uid, name)| Owner { uid, name }).ok_or("expected UID:NAME")
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.uid, self.name)
    }
}
