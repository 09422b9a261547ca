//! Metrics and their text for Prometheus (its exposition format, version 0.0.4).
//!
//! A state machine counts while it works, at no more cost than an addition, and makes [`Family`]s of the counts when a client asks. Names
//! and units are as Prometheus recommends: `rsd_` first, base units, `_total` for what only rises.

use std::fmt::Write;
use std::time::Duration;

/// Upper bounds of a histogram's buckets, in seconds: four for each power of ten, from 0.1 ms to 10 min.
const BOUNDS: [f64; 25] = [
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0,
    60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 86400.0,
];

/// All samples of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    values: Values,
}

#[derive(Debug, Clone, PartialEq)]
enum Values {
    Counter(Vec<(Labels, f64)>),
    Gauge(Vec<(Labels, f64)>),
    Histogram(Durations),
}

/// Names and values of a sample's labels.
type Labels = Vec<(&'static str, String)>;

/// A histogram of durations.
#[derive(Debug, Clone, PartialEq)]
pub struct Durations {
    /// `buckets[i]`: how many were longer than `BOUNDS[i - 1]` and at most `BOUNDS[i]`; the last: all longer ones.
    buckets: [u64; BOUNDS.len() + 1],
    sum: f64,
}

impl Default for Durations {
    fn default() -> Durations {
        Durations { buckets: [0; BOUNDS.len() + 1], sum: 0.0 }
    }
}

impl Durations {
    /// Counts one.
    pub fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        self.buckets[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum += seconds;
    }
}

impl Family {
    /// What only rises: one value.
    pub fn counter(name: &'static str, help: &'static str, value: f64) -> Family {
        Family { name, help, values: Values::Counter(vec![(Vec::new(), value)]) }
    }

    /// What only rises: a value for each word of a label.
    pub fn counters<W: Into<String>>(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: impl IntoIterator<Item = (W, f64)>,
    ) -> Family {
        let values = values.into_iter().map(|(word, value)| (vec![(label, word.into())], value)).collect();
        Family { name, help, values: Values::Counter(values) }
    }

    /// A present value.
    pub fn gauge(name: &'static str, help: &'static str, value: f64) -> Family {
        Family { name, help, values: Values::Gauge(vec![(Vec::new(), value)]) }
    }

    /// A present value for each word of a label.
    pub fn gauges<W: Into<String>>(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: impl IntoIterator<Item = (W, f64)>,
    ) -> Family {
        let values = values.into_iter().map(|(word, value)| (vec![(label, word.into())], value)).collect();
        Family { name, help, values: Values::Gauge(values) }
    }

    /// A present value with several labels for each sample.
    pub fn labelled(name: &'static str, help: &'static str, values: Vec<(Labels, f64)>) -> Family {
        Family { name, help, values: Values::Gauge(values) }
    }

    /// Durations.
    pub fn histogram(name: &'static str, help: &'static str, durations: &Durations) -> Family {
        Family { name, help, values: Values::Histogram(durations.clone()) }
    }
}

/// Returns the text of these families, which have different names.
pub fn text(families: &[Family]) -> String {
    let mut out = String::new();
    for Family { name, help, values } in families {
        let (kind, samples) = match values {
            Values::Counter(samples) => ("counter", samples),
            Values::Gauge(samples) => ("gauge", samples),
            Values::Histogram(durations) => {
                head(&mut out, name, help, "histogram");
                histogram(&mut out, name, durations);
                continue;
            }
        };
        head(&mut out, name, help, kind);
        for (labels, value) in samples {
            sample(&mut out, name, labels, *value);
        }
    }
    out
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n"); // writing to a String cannot fail
}

fn histogram(out: &mut String, name: &str, durations: &Durations) {
    let mut below = 0;
    let bounds = BOUNDS.iter().map(|bound| number(*bound)).chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(durations.buckets) {
        below += count;
        sample(out, &format!("{name}_bucket"), &vec![("le", bound)], below as f64);
    }
    sample(out, &format!("{name}_sum"), &Vec::new(), durations.sum);
    sample(out, &format!("{name}_count"), &Vec::new(), below as f64);
}

fn sample(out: &mut String, name: &str, labels: &Labels, value: f64) {
    out.push_str(name);
    for (at, (label, word)) in labels.iter().enumerate() {
        let word = word.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{}{label}=\"{word}\"", if at == 0 { '{' } else { ',' });
    }
    if !labels.is_empty() {
        out.push('}');
    }
    let _ = writeln!(out, " {}", number(value));
}

/// Returns a number as Prometheus reads it.
fn number(value: f64) -> String {
    if value.is_infinite() && value > 0.0 { "+Inf".to_owned() } else { format!("{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_gauges_have_their_kind_and_escaped_labels() {
        let families = [
            Family::counter("rsd_a_total", "How many.\nReally.", 3.0),
            Family::gauges("rsd_b", "Now.", "user", [("a\"n\\n\n", 0.5), ("bob", 1e9)]),
        ];
        let expected = "# HELP rsd_a_total How many.\\nReally.\n# TYPE rsd_a_total counter\nrsd_a_total 3\n\
                        # HELP rsd_b Now.\n# TYPE rsd_b gauge\nrsd_b{user=\"a\\\"n\\\\n\\n\"} 0.5\n\
                        rsd_b{user=\"bob\"} 1000000000\n";
        assert_eq!(text(&families), expected);
    }

    #[test]
    fn a_histogram_counts_all_that_are_at_most_as_long() {
        let mut durations = Durations::default();
        for ms in [0, 1, 3, 700_000, 90_000_000] {
            durations.add(Duration::from_millis(ms));
        }
        let text = text(&[Family::histogram("rsd_d_seconds", "Long.", &durations)]);
        let value = |name: &str| {
            let line = text.lines().find(|line| line.split(' ').next() == Some(name));
            line.and_then(|line| line.split(' ').nth(1)).unwrap_or_else(|| panic!("{name} in {text}")).to_owned()
        };
        assert_eq!(value("rsd_d_seconds_bucket{le=\"0.0001\"}"), "1");
        assert_eq!(value("rsd_d_seconds_bucket{le=\"0.001\"}"), "2");
        assert_eq!(value("rsd_d_seconds_bucket{le=\"0.002\"}"), "2");
        assert_eq!(value("rsd_d_seconds_bucket{le=\"0.005\"}"), "3");
        assert_eq!(value("rsd_d_seconds_bucket{le=\"1800\"}"), "4");
        assert_eq!(value("rsd_d_seconds_bucket{le=\"+Inf\"}"), "5");
        assert_eq!((value("rsd_d_seconds_count"), value("rsd_d_seconds_sum")), ("5".into(), "90700.004".into()));
    }
}
