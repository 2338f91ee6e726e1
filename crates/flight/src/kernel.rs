//! FS-AT as congestion controls of this machine's TCP: `fsat` and `fsat_paper`, for every socket that asks for them
//! (`setsockopt(TCP_CONGESTION)`) and for namespaces that have one as their default.
//!
//! Registering is global to the kernel. What is registered under a name is replaced by what comes after: connections
//! that exist go on with what they began with, new ones get the new one.

mod connections;
pub mod default;
mod pinned;
#[cfg(test)]
mod vectors;

use bpf::probe::TcpStructOps;
use bpf::struct_ops::{self, Loaded, Source};

pub use bpf::struct_ops::Registration;
pub use bpf::{Error, cost, lock};
pub use connections::{Connection, connections};
pub use pinned::{let_go, off, on, pinned};

/// What `nawa flight on` registers by default, the paper's algorithm with what is added to it.
pub const FSAT: &str = "fsat";
/// The published equations and nothing else.
pub const FSAT_PAPER: &str = "fsat_paper";

const OBJECT: &[u8] = bpf::object!("fsat.bpf.o");
const CUBIC: &[u8] = bpf::object!("cubic.bpf.o");

/// The congestion avoidance below FS-AT, the kernel's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    #[default]
    Cubic,
}

/// A congestion control to register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// What sockets call it, at most 15 bytes.
    pub name: String,
    /// What lies below.
    pub base: Base,
    /// The published equations and nothing else.
    pub paper: bool,
}

impl Scheme {
    /// The two that users get.
    pub fn published(base: Base) -> [Scheme; 2] {
        let scheme = |name: &str, paper| Scheme { name: name.to_owned(), base, paper };
        [scheme(FSAT, false), scheme(FSAT_PAPER, true)]
    }

    /// The same under a longer name.
    pub fn suffixed(self, suffix: &str) -> Scheme {
        Scheme { name: self.name + suffix, ..self }
    }
}

/// Whether this kernel can do it.
///
/// # Errors
/// What it lacks, in a sentence.
pub fn probe() -> Result<TcpStructOps, Error> {
    bpf::probe::tcp_struct_ops()
}

/// Registers `scheme` for as long as what is returned lives, or anybody else who holds it; in the place of what is
/// registered by that name.
///
/// # Errors
/// What the kernel lacks or says.
pub fn register(scheme: &Scheme) -> Result<Registration, Error> {
    let kernel = probe()?;
    let loaded = load(scheme, &kernel)?;
    loaded.register(struct_ops::find(&scheme.name, &kernel)?)
}

/// Registers the kernel's CUBIC, called from BPF, as `bpf_cubic`: the measure of what `fsat` costs.
///
/// # Errors
/// What the kernel lacks or says.
pub fn register_rival() -> Result<Registration, Error> {
    let kernel = probe()?;
    let source = Source { object: CUBIC, map: "cubic_ops", name: "bpf_cubic", options: &[] };
    struct_ops::load(source, &kernel)?.register(struct_ops::find("bpf_cubic", &kernel)?)
}

fn load(scheme: &Scheme, kernel: &TcpStructOps) -> Result<Loaded, Error> {
    if scheme.base == Base::Cubic && !kernel.cubic {
        return Err(Error::NoBase("CUBIC that BPF programs can call"));
    }
    let map = match (kernel.tx_start, kernel.cong_control_with_flag) {
        (true, _) => "fsat_ops_7_1",
        (false, true) => "fsat_ops",
        (false, false) => "fsat_ops_6_9",
    };
    let options = options(scheme);
    struct_ops::load(Source { object: OBJECT, map, name: &scheme.name, options: &options }, kernel)
}

/// `struct options` of `bpf/connection.h`.
fn options(scheme: &Scheme) -> Vec<u8> {
    [scheme.base as u32, scheme.paper.into()].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

impl Base {
    fn from_word(word: u32) -> Base {
        if word == 0 { Base::Reno } else { Base::Cubic }
    }
}

#[cfg(test)]
mod tests {
    /// `cubictcp_cwnd_event` is gone since Linux 7.1, and an object that asks for it does not load there.
    #[test]
    fn fsat_asks_for_no_function_that_newer_kernels_lack() {
        let asks = |name: &str| {
            super::OBJECT.windows(name.len() + 1).any(|bytes| bytes == [name, "\0"].concat().as_bytes())
        };
        assert!(asks("cubictcp_cong_avoid"), "what it does ask for is found so");
        assert!(!asks("cubictcp_cwnd_event"));
    }
}
