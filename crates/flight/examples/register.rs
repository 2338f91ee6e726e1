//! Registers one scheme by a name of its own until stdin ends: `register NAME reno|cubic ADDITIONS`.
fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().expect("a name");
    let base = if arguments.next().as_deref() == Some("reno") { flight::kernel::Base::Reno } else { flight::kernel::Base::Cubic };
    let bits = arguments.next().map_or(0, |bits| bits.parse().expect("a number"));
    let scheme = flight::kernel::Scheme { name, base, additions: flight::Additions::from_bits(bits) };
    let held = flight::kernel::register(&scheme);
    if let Err(error) = &held {
        println!("{error}");
        return;
    }
    println!("registered {scheme:?}");
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|n| n > 0) {
        for c in flight::kernel::connections().expect("connections") {
            println!("{c:?}");
        }
    }
}
