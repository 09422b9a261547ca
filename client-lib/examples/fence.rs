//! `fence COUNT`: joins the job of any PMI-1 launcher, fences COUNT times, and rank 0 prints how long its fences took, as
//! one line of JSON, with the times of day at which it had passed the first and the last. Before each fence every rank puts a fresh key;
//! after it, it gets and checks its neighbour's. The times include only the fences.

use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use rsd_mpi::bootstrap::{BootstrapError, Env, Limits, Pmi};

fn main() -> ExitCode {
    let Some(count) = std::env::args().nth(1).and_then(|count| count.parse().ok()).filter(|count| *count > 0) else {
        eprintln!("usage: fence COUNT (at least 1), under a launcher");
        return ExitCode::from(2);
    };
    match run(count) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            eprintln!("fence: failed to {error}{cause}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether everything succeeded; failures are printed to stderr.
fn run(count: usize) -> Result<bool, BootstrapError> {
    let Some(mut pmi) = Pmi::from_env(&Env::of_process(), Limits::default())? else {
        eprintln!("fence: no launcher has started this process (neither PMI_FD nor PMI_PORT is set)");
        return Ok(false);
    };
    let neighbour = (pmi.rank() + 1) % pmi.size();
    let mut times_us = Vec::with_capacity(count);
    let (mut met_unix_ms, mut done_unix_ms) = (None, 0.0);
    for round in 0..count {
        pmi.put(&format!("fence-{round}-{}", pmi.rank()), &value(round, pmi.rank()))?;
        let start = Instant::now();
        pmi.fence()?;
        times_us.push(start.elapsed().as_secs_f64() * 1e6);
        done_unix_ms = unix_ms();
        met_unix_ms.get_or_insert(done_unix_ms);
        let got = pmi.get(&format!("fence-{round}-{neighbour}"))?;
        if got.as_deref() != Some(value(round, neighbour).as_bytes()) {
            eprintln!("fence: rank {} got {got:?} from rank {neighbour} after fence {round}", pmi.rank());
            pmi.abort(1, "wrong_value")?;
            return Ok(false);
        }
    }
    if pmi.rank() == 0 {
        times_us.sort_by(f64::total_cmp);
        let at = |part: f64| times_us[(part * (count - 1) as f64).round() as usize];
        println!(
            "{{\"ranks\":{},\"fences\":{count},\"median_us\":{:.1},\"min_us\":{:.1},\"p99_us\":{:.1},\
             \"met_unix_ms\":{:.3},\"done_unix_ms\":{done_unix_ms:.3}}}",
            pmi.size(),
            at(0.5),
            at(0.0),
            at(0.99),
            met_unix_ms.unwrap_or_default()
        );
    }
    pmi.finalize()?;
    Ok(true)
}

fn unix_ms() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64() * 1e3)
}

fn value(round: usize, rank: u32) -> String {
    format!("{rank}@{round}")
}
