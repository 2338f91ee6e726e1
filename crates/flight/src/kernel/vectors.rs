//! The kernel computes what Rust computes: the same calls, in the BPF machine and natively, and the same states.

use bpf::run::Runnable;

use crate::ffi::{Constants, RawAck, RawFsat};
use crate::vectors::{Event, Numbers, events, files};

const VECTORS: &[u8] = bpf::object!("vectors.bpf.o");
const STATE: usize = size_of::<RawFsat>();

/// `enum call`, `vectors.bpf.c`.
#[derive(Clone, Copy)]
enum Call {
    Init = 0,
    Ack = 1,
    Loss = 2,
}

/// The state after a call, what it returned, and the pacing rate then.
#[derive(Debug, PartialEq, Eq)]
struct After {
    state: Vec<u8>,
    result: u32,
    cut: bool,
    rate: u64,
}

/// `struct vector`, run in the kernel.
fn in_kernel(
    program: &Runnable,
    state: &[u8],
    paper: bool,
    ack: &RawAck,
    call: Call,
    ssthresh: u32,
) -> After {
    let words = [
        paper.into(),
        ack.now_us,
        ack.rtt_us,
        ack.delivered,
        ack.lost,
        ack.flight,
        ack.cwnd,
        ack.cwnd_max,
        ack.mss,
        ack.app_limited,
        call as u32,
        ssthresh,
        0,
        0,
        0,
        0,
    ];
    let mut context = state.to_vec();
    context.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    program.run("run_vector", &mut context).expect("it runs");
    let word = |at: usize| u32::from_ne_bytes(context[at..at + 4].try_into().expect("four bytes"));
    let end = context.len();
    let rate = u64::from(word(end - 8)) | u64::from(word(end - 4)) << 32;
    After { state: context[..STATE].to_vec(), result: word(end - 16), cut: word(end - 12) != 0, rate }
}

/// The same, natively.
fn here(raw: &mut RawFsat, paper: bool, ack: &RawAck, call: Call, ssthresh: u32) -> After {
    let constants = Constants::default();
    let mut cut = false;
    match call {
        Call::Init => *raw = RawFsat::new(ack.now_us, ack.cwnd),
        Call::Ack if paper => raw.paper_on_ack(ack),
        Call::Ack => cut = raw.on_ack(&constants, ack),
        Call::Loss => {}
    }
    let result = match (call, paper) {
        (Call::Loss, true) => raw.paper_on_loss(ack.cwnd, ssthresh, ack.mss),
        (Call::Loss, false) => raw.on_loss(&constants, ack.cwnd, ssthresh),
        (_, true) => raw.paper_window(ack.cwnd, ack.mss),
        (_, false) => raw.window(&constants, ack),
    };
    let rate = if paper { 0 } else { raw.pacing_rate(&constants, ack) };
    After { state: raw.to_bytes(), result, cut, rate }
}

/// A flow that is sometimes plausible and sometimes not.
fn next_ack(numbers: &mut Numbers, before: &RawAck) -> RawAck {
    let wild = numbers.below(50) == 0;
    let any = |numbers: &mut Numbers, usual: u32| {
        if wild { numbers.below(u32::MAX) } else { numbers.below(usual) }
    };
    RawAck {
        now_us: before.now_us.wrapping_add(any(numbers, 20_000)),
        rtt_us: any(numbers, 300_000),
        delivered: any(numbers, 4).saturating_mul(1448),
        lost: any(numbers, 12).saturating_sub(10).saturating_mul(1448),
        flight: any(numbers, 96_000),
        cwnd: any(numbers, 200_000).max(1448),
        cwnd_max: 96_000,
        mss: 1448,
        app_limited: numbers.below(20) / 19,
    }
}

/// The program, or `None` if the test `name` is skipped.
fn program_or_skip(name: &str) -> Option<Runnable> {
    if crate::kernel::probe().is_err() {
        println!("SKIPPED: {name}: needs root and a kernel with struct_ops");
        return None;
    }
    Some(Runnable::load(VECTORS).expect("the kernel takes it"))
}

#[test]
fn the_kernel_replays_the_vectors_of_the_files() {
    let Some(program) = program_or_skip("the_kernel_replays_the_vectors_of_the_files") else { return };
    for text in files() {
        let (mut paper, mut raw) = (true, RawFsat::default());
        let mut state = raw.to_bytes();
        for (line, event, _) in events(text) {
            let (ack, call, ssthresh) = match event {
                Event::Init(begins, ack) => {
                    paper = begins;
                    (ack, Call::Init, 0)
                }
                Event::Ack(ack) => (ack, Call::Ack, 0),
                Event::Loss(ack, ssthresh) => (ack, Call::Loss, ssthresh),
            };
            // What Rust computes is compared with the file by `crate::vectors`.
            let native = here(&mut raw, paper, &ack, call, ssthresh);
            let kernel = in_kernel(&program, &state, paper, &ack, call, ssthresh);
            assert_eq!(kernel, native, "line {line}");
            state = kernel.state;
        }
    }
}

#[test]
fn the_kernel_computes_what_rust_computes() {
    let Some(program) = program_or_skip("the_kernel_computes_what_rust_computes") else { return };
    for paper in [true, false] {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let (mut raw, mut ack) =
            (RawFsat::default(), RawAck { mss: 1448, cwnd: 14_480, ..RawAck::default() });
        let mut state = raw.to_bytes();
        for n in 0..1000 {
            let call = match (n, numbers.below(30)) {
                (0, _) => Call::Init,
                (_, 0) => Call::Loss,
                _ => Call::Ack,
            };
            let ssthresh = numbers.below(200_000);
            let native = here(&mut raw, paper, &ack, call, ssthresh);
            let kernel = in_kernel(&program, &state, paper, &ack, call, ssthresh);
            assert_eq!(kernel, native, "paper {paper}, call {n}: {ack:?}");
            state = kernel.state;
            ack = next_ack(&mut numbers, &ack);
        }
    }
}
