//! How late the emulated links are: `ping` over a link of 10 ms each way that limits nothing, against 20 ms.
//! Needs root; run it with and without load.

use std::net::SocketAddr;
use std::time::Duration;

use lab::emulator::Emulator;
use lab::network::{Network, PathSpec, SERVER, Topology};
use lab::{Error, program};
use link::LinkConfig;

fn main() -> Result<(), Error> {
    lab::start_cleanup()?;
    let emulator = Emulator::start()?;
    let link = LinkConfig { delay: Duration::from_millis(10), ..LinkConfig::default() };
    let network = Network::build(&emulator, &Topology::Relayed(vec![PathSpec::symmetric("link", link)]), 1)?;
    let target = SocketAddr::new(SERVER, 0).ip().to_string();
    let text = program::output(&network.client, "ping", &["-n", "-i", "0.005", "-c", "2000", &target])?;
    let times =
        text.lines().filter_map(|line| line.split_once(" time=")?.1.split(' ').next()?.parse::<f64>().ok());
    let mut late: Vec<f64> = times.map(|time| (time - 20.0) * 1000.0).collect();
    late.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
    println!(
        "{} round trips; later than 20 ms by p50 {:.0} µs, p99 {:.0} µs, max {:.0} µs",
        late.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}
