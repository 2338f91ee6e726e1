//! The kernel computes what Rust computes: the same calls, in the BPF machine and natively, and the same states.

use bpf::run::Runnable;

use crate::ffi::{RawAck, RawConfig, RawFsat};

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
    rate: u64,
}

/// `struct vector`, run in the kernel.
fn in_kernel(
    program: &Runnable,
    state: &[u8],
    config: &RawConfig,
    ack: &RawAck,
    call: Call,
    ssthresh: u32,
) -> After {
    let words = [
        config.additions,
        ack.now_us,
        ack.rtt_us,
        ack.delivered,
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
    ];
    let mut context = state.to_vec();
    context.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    program.run("run_vector", &mut context).expect("it runs");
    let word = |at: usize| u32::from_ne_bytes(context[at..at + 4].try_into().expect("four bytes"));
    let end = context.len();
    let rate = u64::from(word(end - 8)) | u64::from(word(end - 4)) << 32;
    After { state: context[..STATE].to_vec(), result: word(end - 12), rate }
}

/// The same, natively.
fn here(raw: &mut RawFsat, config: &RawConfig, ack: &RawAck, call: Call, ssthresh: u32) -> After {
    let result = match call {
        Call::Init => {
            *raw = RawFsat::new(config, ack.now_us, ack.cwnd);
            raw.window(ack)
        }
        Call::Ack => {
            raw.on_ack(config, ack);
            raw.window(ack)
        }
        Call::Loss => raw.on_loss(config, ack.cwnd, ssthresh, ack.mss),
    };
    After { state: raw.to_bytes(), result, rate: raw.pacing_rate(config, ack) }
}

/// Numbers that look random and are always the same (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) % u64::from(below)) as u32
    }
}

/// A flow that is sometimes plausible and sometimes not.
fn next_ack(numbers: &mut Numbers, before: &RawAck) -> RawAck {
    let wild = numbers.next(50) == 0;
    let any = |numbers: &mut Numbers, usual: u32| {
        if wild { numbers.next(u32::MAX) } else { numbers.next(usual) }
    };
    RawAck {
        now_us: before.now_us.wrapping_add(any(numbers, 20_000)),
        rtt_us: any(numbers, 300_000),
        delivered: any(numbers, 4).saturating_mul(1448),
        flight: any(numbers, 96_000),
        cwnd: any(numbers, 200_000).max(1448),
        cwnd_max: 96_000,
        mss: 1448,
        app_limited: numbers.next(20) / 19,
    }
}

#[test]
fn the_kernel_computes_what_rust_computes() {
    if super::probe().is_err() {
        eprintln!("SKIPPED: the_kernel_computes_what_rust_computes: needs root and a kernel with struct_ops");
        return;
    }
    let program = Runnable::load(VECTORS).expect("the kernel takes it");
    // Each addition by itself, none, and all.
    for additions in (0..8).map(|bit| 1 << bit).chain([0, u32::MAX]) {
        let (config, mut numbers) = (RawConfig { additions }, Numbers(0x9e37_79b9_7f4a_7c15));
        let (mut raw, mut ack) =
            (RawFsat::default(), RawAck { mss: 1448, cwnd: 14_480, ..RawAck::default() });
        let mut state = raw.to_bytes();
        for n in 0..1000 {
            let call = match (n, numbers.next(30)) {
                (0, _) => Call::Init,
                (_, 0) => Call::Loss,
                _ => Call::Ack,
            };
            let ssthresh = numbers.next(200_000);
            let native = here(&mut raw, &config, &ack, call, ssthresh);
            let kernel = in_kernel(&program, &state, &config, &ack, call, ssthresh);
            assert_eq!(kernel, native, "additions {additions}, call {n}: {ack:?}");
            state = kernel.state;
            ack = next_ack(&mut numbers, &ack);
        }
    }
}
