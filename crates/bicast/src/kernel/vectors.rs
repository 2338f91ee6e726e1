//! The kernel classifies as Rust does.

use bpf::run::Runnable;

use crate::core::Reasons;
use crate::ffi::{RawAssociation, RawConnection};
use crate::vectors::{gather, sctp, tcp};

pub const VECTORS: &[u8] = bpf::object!("vectors.bpf.o");

fn program_or_skip(name: &str) -> Option<Runnable> {
    if !bpf::is_root() {
        eprintln!("SKIPPED: {name}: needs root to load BPF programs");
        return None;
    }
    Some(Runnable::load(VECTORS).expect("the kernel takes it"))
}

fn run<const N: usize>(program: &Runnable, name: &str, words: [u32; N]) -> [u32; N] {
    let mut context: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    program.run(name, &mut context).expect("it runs");
    let mut read = context.chunks_exact(4).map(|bytes| u32::from_ne_bytes(bytes.try_into().expect("four")));
    [(); N].map(|()| read.next().expect("as many as were given"))
}

#[test]
fn the_kernel_classifies_sctp_as_rust_does() {
    let Some(program) = program_or_skip("the_kernel_classifies_sctp_as_rust_does") else { return };
    let (mut here, mut there) = (RawAssociation::default(), [0, 0]);
    for vector in sctp() {
        if vector.first {
            (here, there) = (RawAssociation::default(), [0, 0]);
        }
        let fields = gather(&vector.packet);
        let reasons = here.classify(&fields);
        let [known, highest, .., said] =
            run(&program, "run_sctp", [there[0], there[1], fields.found, fields.tsn_low, fields.tsn_high, 0]);
        there = [known, highest];
        assert_eq!(there, [here.tsn_known, here.tsn_highest], "sctp.txt:{}", vector.line);
        assert_eq!(said, reasons, "sctp.txt:{}", vector.line);
        assert_eq!(Reasons::from_word(said), vector.reasons, "sctp.txt:{}", vector.line);
    }
}

#[test]
fn the_kernel_classifies_tcp_as_rust_does() {
    let Some(program) = program_or_skip("the_kernel_classifies_tcp_as_rust_does") else { return };
    let mut there = RawConnection::default();
    for vector in tcp() {
        let c = if vector.first { RawConnection::default() } else { there };
        let s = vector.packet;
        let words = [
            [c.next_known, c.next, c.ack_known, c.ack, c.window, s.seq],
            [s.ack, s.length, s.flags, s.window, s.sack_blocks, 0],
        ];
        let words: [u32; 12] = words.concat().try_into().expect("twelve");
        let [next_known, next, ack_known, ack, window, .., said] = run(&program, "run_tcp", words);
        there = RawConnection { next_known, next, ack_known, ack, window };
        assert_eq!(Reasons::from_word(said), vector.reasons, "tcp.txt:{}", vector.line);
    }
}
