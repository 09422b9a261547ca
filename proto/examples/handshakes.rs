//! `handshakes ADDRESS LOGIN COUNT`: opens COUNT TLS connections to a daemon, eight at a time, and prints how many handshakes
//! succeeded per second, as one line of JSON. LOGIN is the file in which `rsctl login` stored a certificate.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use prost::Message;
use rsd_proto::transport::{Own, Target, dial};
use rsd_proto::v1::Credentials;

/// As many connections are being opened at any time.
const AT_ONCE: usize = 8;
const DEADLINE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, login, count] = &args[..] else {
        eprintln!("usage: handshakes ADDRESS LOGIN COUNT");
        return ExitCode::from(2);
    };
    match run(address, login, count) {
        Ok(per_second) => {
            println!("{{\"count\":{count},\"per_s\":{per_second:.0}}}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("handshakes: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of handshakes per second.
fn run(address: &str, login: &str, count: &str) -> Result<f64, Box<dyn std::error::Error>> {
    let count: usize = count.parse()?;
    let own = Own::new(&Credentials::decode(&*std::fs::read(login)?)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let since = Instant::now();
        let callers = (0..AT_ONCE).map(|caller| {
            let target = Target::Tcp(address.to_owned(), own.dialer(None));
            tokio::spawn(async move {
                for _ in (caller..count).step_by(AT_ONCE) {
                    // The connection closes when the channel is dropped.
                    drop(dial(&target, DEADLINE).await?);
                }
                Ok::<(), rsd_proto::transport::DialError>(())
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await??;
        }
        Ok(count as f64 / since.elapsed().as_secs_f64())
    })
}
