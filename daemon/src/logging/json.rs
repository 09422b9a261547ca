//! Log lines as JSON: one object per line, in which the fields of the event and of the spans around it stand side by side. So
//! `jq 'select(.job == 7)'` finds what the daemon and the step of job 7 have logged.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats events; the fields of spans must be formatted by [`JsonFields`].
#[derive(Debug)]
pub(super) struct JsonLines;

impl<S> FormatEvent<S, JsonFields> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let about = event.metadata();
        let mut line = Map::new();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<JsonFields>>();
            if let Some(Value::Object(fields)) = fields.and_then(|fields| serde_json::from_str(&fields.fields).ok()) {
                line.extend(fields);
            }
        }
        event.record(&mut Fields(&mut line));
        let own = [("timestamp", time), ("level", about.level().to_string()), ("target", about.target().to_owned())];
        line.extend(own.map(|(name, value)| (name.to_owned(), value.into())));
        writeln!(out, "{}", Value::Object(line))
    }
}

/// Takes the fields of an event.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }
}

/// What formats the fields of spans.
pub(super) fn fields() -> JsonFields {
    JsonFields::new()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::prelude::*;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn fields_of_spans_and_of_the_event_stand_side_by_side() {
        let kept = Kept::default();
        let writer = kept.clone();
        let layer = tracing_subscriber::fmt::layer()
            .fmt_fields(fields())
            .event_format(JsonLines)
            .with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let _step = tracing::error_span!("step", job = 7_u64, node = 2_u32).entered();
            tracing::warn!(pid = -1, error = %"no \"file\"\n", ok = true, "cannot serve {}", "a member");
            let _inner = tracing::error_span!("rank", node = 3_u32).entered();
            tracing::info!("inner");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        let first = &lines[0];
        assert_eq!((&first["job"], &first["node"], &first["pid"]), (&7.into(), &2.into(), &(-1).into()));
        assert_eq!((&first["level"], &first["message"]), (&"WARN".into(), &"cannot serve a member".into()));
        assert_eq!((&first["error"], &first["ok"]), (&"no \"file\"\n".into(), &true.into()));
        assert!(first["timestamp"].as_str().unwrap().ends_with('Z') && first["target"].is_string());
        assert_eq!((&lines[1]["job"], &lines[1]["node"]), (&7.into(), &3.into()), "the inner span counts");
    }
}
