//! What BPF programs keep for each socket: socket storage maps, found by name and read by an iterator over sockets.

use std::io::Read;
use std::os::fd::AsFd;

use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{Iter, MapHandle, MapType};

use crate::Error;

/// Runs the iterator `program` of `object` over the sockets of this thread's network namespace, once with each socket
/// storage map of the name `map` with values of `value` bytes as its map of that name, and returns all that it writes.
///
/// # Errors
/// If the kernel refuses the iterator.
pub fn read(object: &[u8], program: &str, map: &str, value: usize) -> Result<Vec<u8>, Error> {
    let mut written = Vec::new();
    let refused = |error| crate::refused(program, error);
    for kept in maps(map, value) {
        let mut open = crate::open(object, program)?;
        for mut own in open.maps_mut().filter(|own| own.name() == map) {
            own.reuse_fd(kept.as_fd()).map_err(refused)?;
        }
        let loaded = open.load().map_err(refused)?;
        let link = crate::program(&loaded, program)?.attach().map_err(refused)?;
        let mut iteration = Iter::new(&link).map_err(refused)?;
        iteration.read_to_end(&mut written).map_err(Error::system("read the sockets' state"))?;
    }
    Ok(written)
}

fn maps(name: &str, value: usize) -> impl Iterator<Item = MapHandle> {
    let fits = move |map: &libbpf_rs::query::MapInfo| {
        map.ty == MapType::SkStorage && map.name == *name && map.value_size as usize == value
    };
    // One that is gone by now is of no interest.
    MapInfoIter::default().filter(fits).filter_map(|map| MapHandle::from_map_id(map.id).ok())
}
