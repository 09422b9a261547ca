//! `rsctl metrics`: what a daemon counts, for Prometheus or a look.

use rsd_proto::v1::MetricsRequest;
use serde_json::json;

use crate::dvm::{self, Observer};
use crate::exit::Failure;
use crate::json;
use crate::print::out;

/// `metrics`.
pub(crate) async fn metrics(mut observer: Observer, as_json: bool) -> Result<u8, Failure> {
    let text = dvm::answer("reading the metrics", observer.get_metrics(MetricsRequest {})).await?.text;
    match as_json {
        true => out(&(json::document(json!({ "text": text })) + "\n"))?,
        false => out(&text)?,
    }
    Ok(0)
}
