//! TCP congestion controls made of BPF programs: loading, registering, finding what is registered.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfoIter};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object, OpenObject};
use rustix::io::Errno;

use crate::probe::TcpStructOps;
use crate::{Error, ffi};

/// Where the object's own `struct tcp_congestion_ops` (`include/vmlinux.h`) holds the name.
const NAME: std::ops::Range<usize> = 0..16;
/// The longest name; the kernel's buffer has an end mark.
pub const LONGEST_NAME: usize = 15;
/// `BPF_STRUCT_OPS_STATE_INUSE`: a map that is registered without a link.
const IN_USE: u32 = 1;
/// What the kernel answers to unregistering a map that is not registered any more.
const REPLACED: [Option<i32>; 2] =
    [Some(Errno::INPROGRESS.raw_os_error()), Some(Errno::NOENT.raw_os_error())];

/// What to load.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The compiled object.
    pub object: &'a [u8],
    /// Which of its struct_ops maps to use; the others are left out.
    pub map: &'a str,
    /// The congestion control's name, at most [`LONGEST_NAME`] bytes.
    pub name: &'a str,
    /// Its constants: the whole of section `.rodata.options`, if it has one.
    pub options: &'a [u8],
}

/// A congestion control whose programs the kernel has accepted, not registered yet.
pub struct Loaded {
    object: Object,
    map: String,
    name: String,
    links: bool,
}

/// A registered congestion control. Dropping it lets go: it is unregistered with its last holder, which may be a pin.
#[derive(Debug)]
pub enum Registration {
    /// By a link.
    Link(OwnedFd),
    /// By a struct_ops map, where there are no links.
    Map(OwnedFd),
}

/// Has the kernel check the programs.
///
/// # Errors
/// What the kernel says.
pub fn load(source: Source, kernel: &TcpStructOps) -> Result<Loaded, Error> {
    let refused = |error| crate::refused(source.name, error);
    let mut open = crate::open(source.object, source.name)?;
    prepare(&mut open, source, kernel).map_err(refused)?;
    let object = open.load().map_err(refused)?;
    Ok(Loaded { object, map: source.map.to_owned(), name: source.name.to_owned(), links: kernel.links })
}

fn prepare(open: &mut OpenObject, source: Source, kernel: &TcpStructOps) -> libbpf_rs::Result<()> {
    for mut map in open.maps_mut() {
        if map.map_type() == MapType::StructOps {
            map.set_autocreate(map.name() == source.map)?;
            if let Some(ops) = map.initial_value_mut() {
                ops[NAME].fill(0);
                ops[NAME][..source.name.len()].copy_from_slice(source.name.as_bytes());
            }
            if !kernel.links {
                map.set_map_flags(0)?;
            }
        } else if map.name().to_string_lossy().ends_with(".rodata.options") {
            map.set_initial_value(source.options)?;
        }
    }
    Ok(())
}

impl Loaded {
    /// Registers it in the place of `before`, whose connections go on as they are; new ones get this one.
    ///
    /// # Errors
    /// What the kernel says; [`Error::NameTaken`] if another than `before` has the name.
    pub fn register(mut self, before: Option<Registration>) -> Result<Registration, Error> {
        if let Some(Registration::Map(before)) = before {
            ffi::unregister(before.as_fd()).map_err(Error::system("unregister the one before"))?;
        } else if let Some(Registration::Link(link)) = before {
            return self.update(link);
        }
        let (links, name) = (self.links, self.name.clone());
        let mut map = self.map().ok_or(Error::NoStructOps)?;
        let mut link = map.attach_struct_ops().map_err(|error| not_registered(error, name))?;
        if links {
            let link = link.as_fd().try_clone_to_owned().map_err(Error::system("keep the link"))?;
            return Ok(Registration::Link(link));
        }
        // Such a link is the map's descriptor; dropped as it is, it would unregister.
        link.disconnect();
        let map = map.as_fd().try_clone_to_owned().map_err(Error::system("keep the map"))?;
        Ok(Registration::Map(map))
    }

    fn update(mut self, link: OwnedFd) -> Result<Registration, Error> {
        let mut map = self.map().ok_or(Error::NoStructOps)?;
        // Makes the map ready, and is refused because the name is taken: by `link`.
        if let Ok(other) = map.attach_struct_ops() {
            let fd = other.as_fd().try_clone_to_owned().map_err(Error::system("keep the link"))?;
            return Ok(Registration::Link(fd));
        }
        ffi::update_link(link.as_fd(), map.as_fd()).map_err(Error::system("replace the one before"))?;
        Ok(Registration::Link(link))
    }

    fn map(&mut self) -> Option<libbpf_rs::MapMut<'_>> {
        self.object.maps_mut().find(|map| map.name() == self.map.as_str())
    }
}

fn not_registered(error: libbpf_rs::Error, name: String) -> Error {
    match error.kind() {
        libbpf_rs::ErrorKind::AlreadyExists => Error::NameTaken(name),
        _ => Error::loader("register", error),
    }
}

impl Registration {
    /// Opens what is pinned at `path`; `None` if nothing is.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path, kernel: &TcpStructOps) -> Result<Option<Registration>, Error> {
        match ffi::open_pin(path) {
            Ok(fd) if kernel.links => Ok(Some(Registration::Link(fd))),
            Ok(fd) => Ok(Some(Registration::Map(fd))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::Pin { path: path.to_owned(), error }),
        }
    }

    /// Keeps it registered beyond this process, until [`Registration::end`].
    ///
    /// # Errors
    /// If it cannot be pinned there.
    pub fn pin(&self, path: &Path) -> Result<(), Error> {
        ffi::pin(self.as_fd(), path).map_err(|error| Error::Pin { path: path.to_owned(), error })
    }

    /// Lets go. Where there are no links this unregisters it, whoever holds it too, unless another has taken its place.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn end(self) -> Result<(), Error> {
        let Registration::Map(map) = &self else { return Ok(()) };
        match ffi::unregister(map.as_fd()) {
            Err(error) if REPLACED.contains(&error.raw_os_error()) => Ok(()),
            ended => ended.map_err(Error::system("unregister")),
        }
    }
}

impl AsFd for Registration {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Registration::Link(fd) | Registration::Map(fd) => fd.as_fd(),
        }
    }
}

/// Finds the BPF congestion control that is registered as `name`, whoever holds it.
///
/// # Errors
/// What the kernel says.
pub fn find(name: &str, kernel: &TcpStructOps) -> Result<Option<Registration>, Error> {
    if kernel.links { find_link(name, kernel) } else { find_map(name, kernel) }
}

fn find_link(name: &str, kernel: &TcpStructOps) -> Result<Option<Registration>, Error> {
    for link in LinkInfoIter::default() {
        let LinkTypeInfo::StructOps(of) = &link.info else { continue };
        if map_name(of.map_id, kernel).as_deref() == Some(name) {
            // It may have ended since.
            return Ok(ffi::link_by_id(link.id).ok().map(Registration::Link));
        }
    }
    Ok(None)
}

fn find_map(name: &str, kernel: &TcpStructOps) -> Result<Option<Registration>, Error> {
    for map in MapInfoIter::default().filter(|map| map.ty == MapType::StructOps) {
        let Some(value) = value(map.id, kernel) else { continue };
        if value.get(4..8) == Some(&IN_USE.to_ne_bytes()) && name_in(&value, kernel).as_deref() == Some(name)
        {
            let map = MapHandle::from_map_id(map.id).map_err(|e| Error::loader("open the map", e))?;
            let fd = map.as_fd().try_clone_to_owned().map_err(Error::system("keep the map"))?;
            return Ok(Some(Registration::Map(fd)));
        }
    }
    Ok(None)
}

fn map_name(id: u32, kernel: &TcpStructOps) -> Option<String> {
    name_in(&value(id, kernel)?, kernel)
}

/// What a struct_ops map of TCP registers.
fn value(id: u32, kernel: &TcpStructOps) -> Option<Vec<u8>> {
    let map = MapHandle::from_map_id(id).ok()?;
    let info = map.info().ok()?.info;
    if info.btf_vmlinux_value_type_id != kernel.value_type {
        return None;
    }
    map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?
}

fn name_in(value: &[u8], kernel: &TcpStructOps) -> Option<String> {
    let name = value.get(kernel.name_at..kernel.name_at + NAME.len())?;
    let end = name.iter().position(|byte| *byte == 0)?;
    String::from_utf8(name[..end].to_vec()).ok()
}
