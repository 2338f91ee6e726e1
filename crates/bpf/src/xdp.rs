//! XDP programs: loading, attaching to an interface for as long as a descriptor is held, and their maps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput, RingBuffer, RingBufferBuilder};

use rustix::io::Errno;

use crate::{Error, ffi};

/// Where in the kernel a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel makes a packet of a frame.
    Native,
    /// After that: where the driver knows no XDP.
    Generic,
}

/// `NETDEV_XDP_ACT_BASIC`.
const BASIC: u64 = 1 << 0;
/// `NETDEV_XDP_ACT_NDO_XMIT`.
const NDO_XMIT: u64 = 1 << 2;

/// An object whose programs the kernel has accepted.
pub struct Loaded {
    pub(crate) object: Object,
}

/// A program at an interface. It goes with this, or with the process.
#[derive(Debug)]
pub struct Attached {
    /// Where it runs.
    pub mode: Mode,
    /// Why that is not the driver.
    pub refused: Option<String>,
    _link: OwnedFd,
}

/// What a run by hand came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The program's verdict.
    pub verdict: u32,
    /// The frame then.
    pub frame: Vec<u8>,
    /// Of one run, on average.
    pub time: Duration,
}

/// Has the kernel check `object`. Each of `constants` is the whole content of the section `.rodata.NAME`.
///
/// # Errors
/// What the kernel says.
pub fn load(object: &[u8], constants: &[(&str, &[u8])]) -> Result<Loaded, Error> {
    load_programs(object, constants, None)
}

/// The same with `programs` alone, of all that the object has.
///
/// # Errors
/// What the kernel says.
pub fn load_only(object: &[u8], constants: &[(&str, &[u8])], programs: &[&str]) -> Result<Loaded, Error> {
    load_programs(object, constants, Some(programs))
}

fn load_programs(
    object: &[u8],
    constants: &[(&str, &[u8])],
    programs: Option<&[&str]>,
) -> Result<Loaded, Error> {
    let mut open = crate::open(object, "object")?;
    let name = open.progs_mut().next().map(|first| first.name().to_string_lossy().into_owned());
    let refused = |error| crate::refused(name.as_deref().unwrap_or_default(), error);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let set = constants.iter().find(|(section, _)| name.ends_with(&format!(".rodata.{section}")));
        if let Some((_, bytes)) = set {
            map.set_initial_value(bytes).map_err(refused)?;
        }
    }
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if let Some(wanted) = programs {
            program.set_autoload(wanted.contains(&name.as_str()));
        }
    }
    Ok(Loaded { object: open.load().map_err(refused)? })
}

/// Whether the interface with this index takes frames that programs redirect to it. Kernels before 6.3 do not say: false.
///
/// # Errors
/// What the kernel says.
pub fn takes_redirected(interface: u32) -> Result<bool, Error> {
    let features =
        ffi::xdp_features(interface).map_err(Error::system("ask what XDP does at an interface"))?;
    Ok(features & NDO_XMIT != 0)
}

/// Whether the driver of the interface with this index runs programs. Kernels before 6.3 do not say: false.
///
/// # Errors
/// What the kernel says.
pub fn runs_in_driver(interface: u32) -> Result<bool, Error> {
    let features =
        ffi::xdp_features(interface).map_err(Error::system("ask what XDP does at an interface"))?;
    Ok(features & BASIC != 0)
}

/// Passes every frame that comes in by the interface with this index. The end of a veth needs some program, so that what
/// one at the other end sends back (XDP_TX) arrives.
///
/// # Errors
/// What the kernel says; something else may be attached there.
pub fn pass(interface: u32) -> Result<Attached, Error> {
    let program = ffi::load_pass().map_err(Error::system("load an XDP program"))?;
    let link = ffi::attach_xdp(program.as_fd(), interface, libbpf_sys::XDP_FLAGS_DRV_MODE);
    let link = link.map_err(Error::system("attach an XDP program to the interface"))?;
    Ok(Attached { mode: Mode::Native, refused: None, _link: link })
}

/// Why a driver takes no program, by what the kernel answers: it tells its words to nobody but the log.
fn refusal(error: &io::Error) -> String {
    let why = match Errno::from_io_error(error) {
        Some(Errno::OPNOTSUPP) => "it knows no XDP",
        Some(Errno::RANGE) => {
            "its MTU, or a veth's other end's, is too large for XDP: 3498 at most on a veth"
        }
        Some(Errno::INVAL) => "its MTU or an offload (LRO) does not go with XDP",
        Some(Errno::BUSY | Errno::EXIST) => "another program is there",
        _ => "see the kernel's log",
    };
    format!("the driver refuses XDP: {error} ({why}); generic XDP runs above it")
}

impl Loaded {
    /// Attaches `program` to the interface with this index: in its driver, or where that knows no XDP, above it.
    ///
    /// # Errors
    /// What the kernel says of the latter; something else may be attached there.
    pub fn attach(&self, program: &str, interface: u32) -> Result<Attached, Error> {
        let found = crate::program(&self.object, program)?;
        let refused = match ffi::attach_xdp(found.as_fd(), interface, libbpf_sys::XDP_FLAGS_DRV_MODE) {
            Ok(link) => return Ok(Attached { mode: Mode::Native, refused: None, _link: link }),
            Err(error) => refusal(&error),
        };
        let link = ffi::attach_xdp(found.as_fd(), interface, libbpf_sys::XDP_FLAGS_SKB_MODE);
        let link = link.map_err(Error::system("attach an XDP program to the interface"))?;
        Ok(Attached { mode: Mode::Generic, refused: Some(refused), _link: link })
    }

    /// Sets what the section whose name ends with `name` holds, as a whole.
    ///
    /// # Errors
    /// If there is none of that size.
    pub fn set(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        let changed = self.map(name)?.update(&0u32.to_ne_bytes(), value, MapFlags::ANY);
        changed.map_err(|error| Error::loader("change a BPF program's variables", error))
    }

    /// The elements of a per-CPU array of numbers of 64 bits, each summed over all processors.
    ///
    /// # Errors
    /// If there is no such map.
    pub fn sums(&self, name: &str) -> Result<Vec<u64>, Error> {
        let map = self.map(name)?;
        let sum = |key: u32| {
            let values = map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
            let number = |value: &Vec<u8>| value.as_slice().try_into().map_or(0, u64::from_ne_bytes);
            Ok(values.iter().map(number).sum())
        };
        let sums: libbpf_rs::Result<_> = (0..map.max_entries()).map(sum).collect();
        sums.map_err(|error| Error::loader("read a BPF program's counters", error))
    }

    /// The map `name`, to be mapped into memory.
    ///
    /// # Errors
    /// If there is no such map, or descriptors have run out.
    pub fn descriptor(&self, name: &str) -> Result<OwnedFd, Error> {
        self.map(name)?.as_fd().try_clone_to_owned().map_err(Error::system("keep a BPF map"))
    }

    /// The reading end of the ring buffer `name`.
    ///
    /// # Errors
    /// If there is no such map.
    pub fn ring(&self, name: &str) -> Result<Ring, Error> {
        let map = self.map(name)?;
        let failed = |error| Error::loader("read a ring buffer", error);
        let taken = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&taken);
        let take = move |bytes: &[u8]| {
            into.lock().unwrap_or_else(PoisonError::into_inner).push(bytes.to_vec());
            0
        };
        let fd = map.as_fd().try_clone_to_owned().map_err(Error::system("keep a ring buffer"))?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, take).map_err(failed)?;
        Ok(Ring { ring: builder.build().map_err(failed)?, taken, fd })
    }

    /// The program `name`, to be run by [`crate::run::repeat`].
    ///
    /// # Errors
    /// If there is no such program, or descriptors have run out.
    pub fn program(&self, name: &str) -> Result<OwnedFd, Error> {
        let found = crate::program(&self.object, name)?;
        found.as_fd().try_clone_to_owned().map_err(Error::system("keep a BPF program"))
    }

    /// Runs `program` by hand on `frame`, `repeat` times.
    ///
    /// # Errors
    /// If the kernel does not run it.
    pub fn run(&self, program: &str, frame: &[u8], repeat: u32) -> Result<Run, Error> {
        let found = crate::program(&self.object, program)?;
        let mut out = vec![0; 4096];
        let input = ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat,
            ..ProgramInput::default()
        };
        let output = found.test_run(input).map_err(|error| Error::loader("run a BPF program", error))?;
        let frame = output.data.map(|data| data.to_vec()).unwrap_or_default();
        Ok(Run { verdict: output.return_value, frame, time: output.duration })
    }
}

/// The reading end of a ring buffer. Readable when there is something.
pub struct Ring {
    ring: RingBuffer<'static>,
    taken: Arc<Mutex<Vec<Vec<u8>>>>,
    fd: OwnedFd,
}

impl Ring {
    /// Takes up to `most` records out, oldest first.
    pub fn take(&self, most: usize) -> Vec<Vec<u8>> {
        self.ring.consume_raw_n(most);
        std::mem::take(&mut *self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
