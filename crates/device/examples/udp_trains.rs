//! How fast trains of datagrams go over loopback, sender and receiver in one thread: `cargo run --release --example
//! udp_trains`.

use std::time::Duration;

use device::monotonic;
use device::udp::{Options, RecvBatch, Transmit, UdpSocket};

const RUN: Duration = Duration::from_secs(2);

/// Gbit/s of payload that arrived, with trains of `segments` datagrams of `size` bytes.
fn measure(segments: usize, size: usize) -> std::io::Result<f64> {
    let bind = || UdpSocket::bind(([127, 0, 0, 1], 0).into(), Options::default());
    let (sender, receiver, mut batch) = (bind()?, bind()?, RecvBatch::default());
    let contents = vec![0; segments * size];
    let remote = receiver.local_address()?;
    let train = Transmit {
        remote,
        local: None,
        interface: None,
        tos: 0,
        segment_size: Some(size),
        contents: &contents,
    };
    let (start, mut bytes) = (monotonic(), 0);
    while monotonic() - start < RUN {
        sender.send(&vec![train; 16.max(64 / segments)]);
        while receiver.recv(&mut batch, |_, datagram| bytes += datagram.len()).is_ok() {}
    }
    Ok(bytes as f64 * 8.0 / (monotonic() - start).as_nanos() as f64)
}

fn main() -> std::io::Result<()> {
    for segments in [1, 4, 16, 44] {
        println!("trains of {segments:2} × 1400 bytes: {:6.2} Gbit/s", measure(segments, 1400)?);
    }
    Ok(())
}
