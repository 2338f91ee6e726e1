//! What a frame of 100 bytes costs in the driver: medians over runs by hand (BPF_PROG_TEST_RUN), in ns, each of which has the
//! cost of such a run on top, which the row "passed" shows. `cargo run --release -p flood --features node --example frame_cost`,
//! as root.

use flood::driver::{Driver, Handing, Listening};
use flood::{ETHERTYPE, Format, Header, Kind, Rules, Wire};

const RUNS: u32 = 20_000;
const KEY: [u8; 16] = [7; 16];

fn ethernet(ethertype: u16, frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, 9]);
    bytes.extend(ethertype.to_be_bytes());
    bytes.extend(frame);
    bytes
}

/// The median of one run each of so many frames, `fresh` ones or the same again and again.
fn median(driver: &Driver, format: &Format, ethertype: u16, fresh: bool) -> u128 {
    let data = vec![0x5a; 100 - format.wire().header_bytes()];
    let once = |seq: u32| {
        let header = Header { id: 2, epoch: 1, seq, ttl: 9, kind: Kind::Data };
        let frame = ethernet(ethertype, &format.write(&header, &data));
        let time = driver.run(&frame, 1).expect("the kernel runs it").time.as_nanos();
        driver.take();
        time
    };
    let mut times: Vec<_> = (1..=RUNS).map(|number| once(if fresh { number } else { 1 })).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    use Listening::{Board, Nobody, Node};
    let row = |name: &str, key: Option<[u8; 16]>, listening: Listening, ethertype: u16, fresh: bool| {
        let format = Format::new(Wire::One, key);
        let rules = Rules { format, id: 1, rate_limit: None };
        let driver =
            Driver::load(&rules, [2, 0, 0, 0, 0, 1], Handing::default()).expect("the kernel takes it");
        driver.listen(listening).expect("it can be told");
        println!("{name:30} {:5}", median(&driver, &format, ethertype, fresh));
    };
    row("passed: no flood", None, Nobody, 0x0800, true);
    row("duplicate", None, Nobody, ETHERTYPE, false);
    row("relayed", None, Nobody, ETHERTYPE, true);
    row("relayed, tag checked", Some(KEY), Nobody, ETHERTYPE, true);
    row("relayed, put onto the board", None, Board, ETHERTYPE, true);
    row("relayed, the node woken", None, Node, ETHERTYPE, true);
}
