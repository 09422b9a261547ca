//! Settings: the table of keys, and the layers that set their values.
//!
//! `rsd.toml` in this package documents every key and is the lowest layer. An error names the file, the line and the key. Unknown keys
//! are refused.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::nearest::edits;
use crate::ports::PortRange;
use crate::{duration, size};

/// The lowest layer, with every key and its documentation.
pub const BUILT_IN: &str = include_str!("../rsd.toml");

macro_rules! settings {
    ($(
        $(#[$about:meta])*
        $section:ident: $Section:ident { $( $(#[$what:meta])* $key:ident: $Type:ty, )* }
    )*) => {
        /// Every setting.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Settings { $( $(#[$about])* pub $section: $Section, )* }

        $(
            $(#[$about])*
            #[derive(Debug, Clone, Default, PartialEq, Eq)]
            pub struct $Section { $( $(#[$what])* pub $key: $Type, )* }
        )*

        /// Every full key, in the order of `rsd.toml`.
        pub const KEYS: &[&str] = &[$($( concat!(stringify!($section), ".", stringify!($key)), )*)*];

        impl Settings {
            fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), Refused> {
                match key {
                    $($( concat!(stringify!($section), ".", stringify!($key)) => {
                        self.$section.$key = Value::read(value).map_err(Refused::Value)?;
                        Ok(())
                    } )*)*
                    _ => Err(Refused::Key),
                }
            }
        }
    };
}

settings! {
    /// The daemon's log.
    log: Log {
        /// A level, or levels per component as `tracing` parses them.
        level: String,
        /// Text or JSON.
        format: LogFormat,
    }
    /// The tree of daemons.
    tree: Tree {
        /// The most children of a daemon.
        arity: usize,
        /// The most bytes that the ranks of a job put before a fence and that go to all nodes.
        replicated_max: u64,
    }
    /// The link from a daemon to its parent.
    link: Link {
        /// After how long a link on which nothing answers counts as cut.
        silence: Duration,
        /// How long the head waits for a disconnected node to reconnect.
        reattach_grace: Duration,
        /// The longest pause between two attempts to connect.
        retry_max: Duration,
        /// The timeout of one attempt to connect.
        dial_deadline: Duration,
    }
    /// Daemons that stand by for the head.
    standby: Standby {
        /// How long the head waits for a standby that confirms nothing.
        patience: Duration,
    }
    /// The head's lease in etcd, with which standbys take over by themselves.
    head: Head {
        /// The etcd servers; empty: none.
        etcd: Vec<String>,
        /// Where in etcd the DVM has its keys.
        etcd_prefix: String,
        /// How long the head may be silent.
        lease: Duration,
        /// The user of etcd.
        etcd_user: Option<String>,
        /// The file with the user's password.
        etcd_password_file: Option<String>,
        /// The file with the authority of etcd's certificates.
        etcd_authority: Option<String>,
        /// The file with the certificate for etcd.
        etcd_certificate: Option<String>,
        /// The file with its key.
        etcd_key: Option<String>,
    }
    /// Addresses and ports of the node.
    network: Network {
        /// The addresses to advertise, best first; empty: those of the interfaces.
        advertise: Vec<String>,
        /// The interfaces whose addresses to advertise, best first; empty: all that lead to other machines.
        interfaces: Vec<String>,
        /// The ports on which daemon and ranks listen.
        port_range: PortRange,
    }
    /// The node.
    node: Node {
        /// What it has besides cores, memory and GPUs, as `fpga:2`.
        resources: Vec<String>,
    }
    /// Steps, the parts of jobs on a node.
    step: Step {
        /// How long a step runs without its daemon before it ends its ranks.
        orphan_deadline: Duration,
    }
    /// Jobs at the head.
    jobs: Jobs {
        /// How many ended jobs the head remembers.
        keep: usize,
        /// How long the head remembers an ended job.
        keep_for: Duration,
        /// The most bytes of output of a user's ended jobs that the head keeps.
        keep_bytes: u64,
        /// The time between SIGTERM and SIGKILL.
        kill_grace: Duration,
        /// The most bytes of output that the head keeps for a job.
        log_max: u64,
        /// The most that the logs of all jobs have together.
        logs_max: Space,
        /// What the DVM has as a whole, as `licence:4`.
        resources: Vec<String>,
    }
    /// What one user may have in a DVM that serves all users; root may have any number.
    users: Users {
        /// The most jobs that are queued or running.
        jobs: usize,
        /// The most bytes of the submissions of these jobs.
        submissions: u64,
        /// The most clients that follow jobs.
        followers: usize,
        /// The most connections to one daemon.
        connections: usize,
        /// The most bytes of job logs that the head keeps.
        log: u64,
    }
    /// Output of ranks.
    output: Output {
        /// The most unacknowledged bytes of a step.
        window: u64,
        /// The longest line in bytes. Longer lines are forwarded in pieces.
        line_max: u64,
    }
}

/// A part of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Of its size.
    Percent(u8),
    /// So much.
    Bytes(u64),
}

impl Default for Space {
    fn default() -> Space {
        Space::Percent(100)
    }
}

/// The form of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The settings of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The file.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// The settings in effect, and where each value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// Every key, in the order of [`KEYS`].
    pub values: Vec<KeyValue>,
    /// The files that were looked for, lowest first, and whether each was read.
    pub files: Vec<(PathBuf, bool)>,
}

/// One key, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// `jobs.keep`.
    pub key: &'static str,
    /// The value, in TOML.
    pub value: String,
    /// What set it.
    pub source: Source,
}

/// What set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The default.
    BuiltIn,
    /// A line of a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable.
    Variable(&'static str),
    /// A command-line option.
    Option(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::BuiltIn => f.write_str("built in"),
            Source::File { path, line } => write!(f, "{}:{line}", path.display()),
            Source::Variable(name) => write!(f, "${name}"),
            Source::Option(name) => f.write_str(name),
        }
    }
}

impl Loaded {
    /// Reads the settings files of this environment that exist, and merges them. `named` is a file that takes the place of
    /// the one in `RSD_CONFIG`.
    pub fn load(named: Option<&Path>, env: impl Fn(&str) -> Option<OsString>) -> Result<Loaded, SettingsError> {
        let (mut layers, mut files) = (Vec::new(), Vec::new());
        for LayerFile { path, required } in layer_files(named, env) {
            match std::fs::read_to_string(&path) {
                Ok(text) => {
                    files.push((path.clone(), true));
                    layers.push(Layer { path, text });
                }
                Err(error) if !required && is_absent(&error) => files.push((path, false)),
                Err(source) => return Err(SettingsError::Unreadable { path, source }),
            }
        }
        let loaded = Loaded::from_layers(&layers)?;
        Ok(Loaded { files, ..loaded })
    }

    /// The built-in settings, overridden by each layer in turn.
    fn from_layers(layers: &[Layer]) -> Result<Loaded, SettingsError> {
        let value = |key: &&'static str| KeyValue { key, value: String::new(), source: Source::BuiltIn };
        let values = KEYS.iter().map(value).collect();
        let mut loaded = Loaded { settings: Settings::default(), values, files: Vec::new() };
        let built_in = Layer { path: "rsd.toml (built in)".into(), text: BUILT_IN.into() };
        loaded.overlay(&built_in, |_| Source::BuiltIn)?;
        let file = |layer: &Layer| {
            let path = layer.path.clone();
            move |line| Source::File { path: path.clone(), line }
        };
        layers.iter().try_for_each(|layer| loaded.overlay(layer, file(layer)))?;
        Ok(loaded)
    }

    /// Records that an option or variable set a key to a string.
    pub fn set_text(&mut self, key: &str, text: &str, source: Source) {
        self.note(key, format!("\"{text}\""), source);
    }

    fn note(&mut self, key: &str, value: String, source: Source) {
        if let Some(known) = self.values.iter_mut().find(|known| known.key == key) {
            (known.value, known.source) = (value, source);
        }
    }

    fn overlay(&mut self, layer: &Layer, source: impl Fn(usize) -> Source) -> Result<(), SettingsError> {
        let root = DeTable::parse(&layer.text).map_err(|error| SettingsError::Syntax {
            path: layer.path.clone(),
            line: line(&layer.text, error.span().unwrap_or_default()),
            message: error.message().to_owned(),
        })?;
        for (section, value) in root.get_ref() {
            let name = section.get_ref();
            let refused = |refused: Refused| Err(refused.at(layer, name.to_string(), section.span(), value.span()));
            if !sections().any(|known| known == name) {
                return refused(Refused::Key);
            }
            let Some(table) = value.get_ref().as_table() else {
                return refused(Refused::Value("a section of keys"));
            };
            for (key, value) in table {
                let full = format!("{name}.{}", key.get_ref());
                if let Err(refused) = self.settings.set(&full, value.get_ref()) {
                    return Err(refused.at(layer, full, key.span(), value.span()));
                }
                let text = layer.text.get(value.span()).unwrap_or_default().to_owned();
                self.note(&full, text, source(line(&layer.text, key.span())));
            }
        }
        Ok(())
    }
}

impl Settings {
    /// Returns the settings in effect in this environment.
    pub fn load(env: impl Fn(&str) -> Option<OsString>) -> Result<Settings, SettingsError> {
        Ok(Loaded::load(None, env)?.settings)
    }

    /// The built-in settings, overridden by each layer in turn.
    pub fn from_layers(layers: &[Layer]) -> Result<Settings, SettingsError> {
        Ok(Loaded::from_layers(layers)?.settings)
    }
}

/// A file that may hold a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerFile {
    /// Its path.
    pub path: PathBuf,
    /// Whether a missing file is an error, because the user named it.
    pub required: bool,
}

/// Returns the files that may hold layers, lowest first. `named` replaces the file in `RSD_CONFIG`.
pub fn layer_files(named: Option<&Path>, env: impl Fn(&str) -> Option<OsString>) -> Vec<LayerFile> {
    let variable = |name| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = |name| variable(name).filter(|path| path.is_absolute());
    let own = dir("XDG_CONFIG_HOME").or_else(|| dir("HOME").map(|home| home.join(".config")));
    let optional = |path| LayerFile { path, required: false };
    let mut files = vec![optional("/etc/rsd/rsd.toml".into())];
    files.extend(own.map(|dir| optional(dir.join("rsd/rsd.toml"))));
    let named = named.map(Path::to_owned).or_else(|| variable("RSD_CONFIG"));
    files.extend(named.map(|path| LayerFile { path, required: true }));
    files
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Why the settings cannot be used.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the fields say where and what")]
pub enum SettingsError {
    /// A file that exists, or that the user named, cannot be read.
    #[error("cannot read the settings in {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// Invalid TOML.
    #[error("cannot read the settings in {}:{line}: {message}", path.display())]
    Syntax { path: PathBuf, line: usize, message: String },
    /// An unknown key.
    #[error("{}:{line}: unknown setting {key}; {hint}", path.display())]
    UnknownKey { path: PathBuf, line: usize, key: String, hint: String },
    /// An invalid value.
    #[error("{}:{line}: {key} must be {accepted}, not {value}", path.display())]
    BadValue { path: PathBuf, line: usize, key: String, value: String, accepted: &'static str },
}

/// What is wrong with one line.
enum Refused {
    Key,
    /// A value; what the key accepts.
    Value(&'static str),
}

impl Refused {
    fn at(self, layer: &Layer, key: String, key_span: Range<usize>, value_span: Range<usize>) -> SettingsError {
        let path = layer.path.clone();
        match self {
            Refused::Key => {
                let hint = hint(&key);
                SettingsError::UnknownKey { path, line: line(&layer.text, key_span), key, hint }
            }
            Refused::Value(accepted) => {
                let value = layer.text.get(value_span.clone()).unwrap_or_default().to_owned();
                SettingsError::BadValue { path, line: line(&layer.text, value_span), key, value, accepted }
            }
        }
    }
}

/// Returns the line, from 1, in which a byte range starts.
fn line(text: &str, span: Range<usize>) -> usize {
    text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
}

fn sections() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter_map(|key| key.split_once('.')).map(|(section, _)| section)
}

/// Suggests the key nearest to an unknown one, or lists all keys.
fn hint(key: &str) -> String {
    let candidates = KEYS.iter().copied().chain(sections());
    // Compares with the full key and with its last part, in case the user forgot the section.
    let distance = |known: &str| {
        let last = known.rsplit('.').next().unwrap_or(known);
        edits(key, known).min(edits(key, last).saturating_add(1))
    };
    let nearest = candidates.map(|known| (distance(known), known)).min().filter(|(edits, _)| *edits * 2 <= key.len());
    match nearest {
        Some((_, known)) => format!("did you mean {known}?"),
        None => format!("the settings are {}", KEYS.join(", ")),
    }
}

/// The type of a setting's value. An error names what is accepted.
trait Value: Sized {
    fn read(value: &DeValue<'_>) -> Result<Self, &'static str>;
}

impl Value for String {
    fn read(value: &DeValue<'_>) -> Result<String, &'static str> {
        value.as_str().filter(|text| !text.is_empty()).map(str::to_owned).ok_or("a text such as \"info\"")
    }
}

/// An empty text is None.
impl Value for Option<String> {
    fn read(value: &DeValue<'_>) -> Result<Option<String>, &'static str> {
        let text = value.as_str().ok_or("a text, or \"\" for none")?;
        Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
    }
}

impl Value for LogFormat {
    fn read(value: &DeValue<'_>) -> Result<LogFormat, &'static str> {
        match value.as_str() {
            Some("text") => Ok(LogFormat::Text),
            Some("json") => Ok(LogFormat::Json),
            Some(_) | None => Err("\"text\" or \"json\""),
        }
    }
}

impl Value for PortRange {
    fn read(value: &DeValue<'_>) -> Result<PortRange, &'static str> {
        value.as_str().and_then(|text| text.parse().ok()).ok_or("a range such as \"7000-7100\", or \"\"")
    }
}

impl Value for Vec<String> {
    fn read(value: &DeValue<'_>) -> Result<Vec<String>, &'static str> {
        let words = value.as_array().and_then(|values| {
            let word = |value: &Spanned<DeValue<'_>>| {
                Some(value.get_ref().as_str()?.to_owned()).filter(|word| !word.is_empty())
            };
            values.iter().map(word).collect::<Option<Vec<String>>>()
        });
        words.ok_or("a list such as [\"eth0\", \"ib0\"]")
    }
}

/// A count.
impl Value for usize {
    fn read(value: &DeValue<'_>) -> Result<usize, &'static str> {
        let number = value.as_integer().and_then(|number| u32::from_str_radix(number.as_str(), number.radix()).ok());
        number.filter(|number| *number > 0).map(|number| number as usize).ok_or("a whole number from 1 up")
    }
}

/// A size in bytes.
impl Value for u64 {
    fn read(value: &DeValue<'_>) -> Result<u64, &'static str> {
        let bytes = value.as_str().and_then(|text| size::parse(text).ok());
        bytes.filter(|bytes| *bytes > 0).ok_or("a size such as \"256KiB\"")
    }
}

/// A percentage of the file system, or a size.
impl Value for Space {
    fn read(value: &DeValue<'_>) -> Result<Space, &'static str> {
        let percent =
            value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|number| number.parse::<u8>().ok());
        match percent {
            Some(percent @ 1..=95) => Ok(Space::Percent(percent)),
            Some(_) => Err("a percentage from 1% to 95%"),
            None => u64::read(value)
                .map(Space::Bytes)
                .map_err(|_| "a part of the disk such as \"10%\", or a size such as \"64GiB\""),
        }
    }
}

impl Value for Duration {
    fn read(value: &DeValue<'_>) -> Result<Duration, &'static str> {
        value.as_str().and_then(|text| duration::parse(text).ok()).ok_or("a duration such as \"10s\"")
    }
}

#[cfg(test)]
mod tests;
