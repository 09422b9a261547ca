//! Compares the answers of `--compat openmpi5` with those of Open MPI 5.0.11 to 759 placement requests. Every rank must be on the
//! same node with the same binding, or the request refused for lack of slots if Open MPI refused it. README.md describes the
//! data.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

mod answer;
mod case;

use rsd_core::place::{Refusal, place};

use answer::Answer;
use case::{Case, Outcome};

#[test]
fn openmpi5_answers_as_recorded() {
    let cases: Vec<Case> = include_str!("openmpi-5.0.11.jsonl").lines().map(Case::parse).collect();
    assert_eq!(cases.len(), 759);
    let mut wrong = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let nodes = case.nodes();
        let got = place(&nodes, &case.request(), 0);
        let complaint = match (&case.outcome, &got) {
            (Outcome::Refused, Err(Refusal::NotEnoughSlots(_))) => None,
            (Outcome::Mapped(expected), Ok(placement)) => {
                let got = Answer::of(placement, &nodes);
                let expected = Answer::recorded(expected, &nodes[0].topology);
                (got != expected).then(|| format!("expected {expected}\n  but was {got}"))
            }
            (Outcome::Mapped(_), Err(refusal)) => Some(format!("expected a placement\n  but was {refusal}")),
            (Outcome::Refused, Ok(placement)) => {
                Some(format!("expected a refusal for lack of slots\n  but was {}", Answer::of(placement, &nodes)))
            }
            (Outcome::Refused, Err(refusal)) => {
                Some(format!("expected a refusal for lack of slots\n  but was {refusal}"))
            }
        };
        wrong.extend(complaint.map(|complaint| format!("line {}: {case}\n  {complaint}", at + 1)));
    }
    assert!(wrong.is_empty(), "{} of {} cases differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
