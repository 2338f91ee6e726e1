//! Configuration files written: a new one, which overwrites nothing, and a peer behind what is there.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use rand_core::{OsRng, TryRngCore};
use tunnel::{PrivateKey, PublicKey};
use zeroize::Zeroizing;

use super::cost::Cost;
use super::uplinks::Uplink;
use crate::config::{self, HostPort};
use crate::failure::Failure;

/// The key's name, beside the configuration file.
const KEY: &str = "key";

/// The start of an end's file.
pub fn end(addresses: &[IpNet], listen: Option<u16>, endpoints: &[HostPort]) -> String {
    let mut text = format!(
        "[node]\nkey-file = \"{KEY}\"\n\n[tunnel]\ninterface = \"nawa0\"\naddresses = {}\n",
        list(addresses)
    );
    if let Some(port) = listen {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "listen = {port}");
    }
    if !endpoints.is_empty() {
        let _ = writeln!(text, "endpoints = {}", list(endpoints));
    }
    text
}

/// A peer's section.
pub fn peer(name: &str, key: &PublicKey, routes: &[IpNet]) -> String {
    format!("\n[[peer]]\nname = \"{name}\"\npublic-key = \"{key}\"\nroutes = {}\n", list(routes))
}

/// A path for each uplink, or, where none is found, one that leaves as the routing table says.
pub fn paths(uplinks: &[Uplink], remotes: &[HostPort]) -> String {
    let path = |name: &str, local: &str, remote: &HostPort, cost: &Cost| {
        format!("\n[[peer.path]]\nname = \"{name}\"\n{local}remote = \"{remote}\"\n{cost}")
    };
    if uplinks.is_empty() {
        return remotes.first().map_or(String::new(), |remote| path("any", "", remote, &Cost::default()));
    }
    let named = |uplink: &Uplink| {
        let name = uplink.interface.replace(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)), "_");
        path(&name, &format!("local = \"{}\"\n", uplink.interface), &uplink.remote, &uplink.cost)
    };
    uplinks.iter().map(named).collect()
}

fn list<T: ToString>(values: &[T]) -> String {
    let quoted: Vec<_> = values.iter().map(|value| format!("\"{}\"", value.to_string())).collect();
    format!("[{}]", quoted.join(", "))
}

/// Those of a prefix that hosts may have. The first of a prefix of IPv6 is its routers' (RFC 4291 §2.6.1).
pub fn usable(prefix: &IpNet) -> impl Iterator<Item = IpAddr> + use<> {
    let routers = prefix.network();
    let alone = prefix.prefix_len() == prefix.max_prefix_len();
    prefix.hosts().filter(move |host| alone || *host != routers)
}

/// The host's own address of each prefix, as a route to it.
pub fn hosts(addresses: &[IpNet]) -> Vec<IpNet> {
    addresses.iter().map(|address| IpNet::from(address.addr())).collect()
}

/// A node's two files. Nothing is written while questions are asked and others are called, so that who is interrupted there leaves
/// nothing; what was made is removed again unless [`Made::keep`] is called.
pub struct Made {
    file: PathBuf,
    folder: PathBuf,
    /// The key is not in its file yet.
    new: bool,
    made: Vec<PathBuf>,
    /// The node's private key, of the key file.
    pub key: PrivateKey,
}

impl Made {
    /// Makes a key, or takes the one that is there.
    ///
    /// # Errors
    /// Bad input if `file` exists, or a key file that holds none.
    pub fn begin(file: &Path) -> Result<Made, Failure> {
        if fs::symlink_metadata(file).is_ok() {
            return Err(Failure::bad_input(format!(
                "{} exists already and is not overwritten; name another with --file, or move it away",
                file.display()
            )));
        }
        let folder = folder_of(file);
        let path = folder.join(KEY);
        let new = fs::symlink_metadata(&path).is_err();
        let key = match new {
            true => PrivateKey::generate(&mut OsRng.unwrap_err()),
            false => config::read_key(&path).map_err(Failure::bad_input)?,
        };
        Ok(Made { file: file.to_owned(), folder: folder.to_owned(), new, made: Vec::new(), key })
    }

    /// Writes the key, if it is new, and the configuration file, which has to be good.
    ///
    /// # Errors
    /// Failed if they cannot be written.
    pub fn write(&mut self, text: &str) -> Result<(), Failure> {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&self.folder);
        made.map_err(|error| cannot("make the folder", &self.folder, &error))?;
        if self.new {
            let path = self.folder.join(KEY);
            let line = Zeroizing::new([self.key.to_base64().as_str(), "\n"].concat());
            let written = write(&path, &line, 0o600, None);
            written.map_err(|error| cannot("write", &path, &error))?;
            self.made.push(path);
        }
        write(&self.file, text, 0o644, None).map_err(|error| cannot("write", &self.file, &error))?;
        self.made.push(self.file.clone());
        config::load(&self.file).map(drop)
    }

    /// What has been made stays.
    pub fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.made {
            // It may be gone already.
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes a file as a whole or not at all, also where the power fails: it has its name once it is complete. `old`: what it takes the
/// place of, whose mode and owner it gets; without, nothing may be there.
fn write(path: &Path, text: &str, mode: u32, old: Option<&Metadata>) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    // One that was killed in the middle may have left it.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    let mut fill = || -> std::io::Result<()> {
        file.write_all(text.as_bytes())?;
        if let Some(old) = old {
            let now = file.metadata()?;
            if (now.uid(), now.gid()) != (old.uid(), old.gid()) {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(old.permissions())?;
        }
        file.sync_all()?;
        // Unlike a rename, a link replaces nothing.
        if old.is_some() { fs::rename(&beside, path) } else { fs::hard_link(&beside, path) }
    };
    let written = fill();
    // A link's other name, or what has failed; what was renamed is gone.
    let _ = fs::remove_file(&beside);
    // Where that cannot be, the file is there all the same.
    let _ = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
    written
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Puts `section` behind what stands in `file`: as a whole or not at all.
///
/// # Errors
/// Bad input if the file is not good with it; failed if it cannot be written.
pub fn append(file: &Path, section: &str) -> Result<(), Failure> {
    let text = fs::read_to_string(file).map_err(|error| cannot("read", file, &error))?;
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let text = format!("{text}{end}{section}");
    config::check_text(file, &text)?;
    let file = fs::canonicalize(file).map_err(|error| cannot("find", file, &error))?;
    let written = fs::metadata(&file).and_then(|old| write(&file, &text, 0o600, Some(&old)));
    written.map_err(|error| cannot("write", &file, &error))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    let todo = match error.kind() {
        ErrorKind::PermissionDenied => "; use sudo, or name another place with --file",
        _ => "",
    };
    Failure::failed(format!("cannot {what} {}: {error}{todo}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_good_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("new/nawa.toml");
        let mut made = Made::begin(&file).expect("a new folder");
        let other = PrivateKey::generate(&mut OsRng.unwrap_err()).public();
        let addresses = ["10.77.0.2/24".parse().expect("a prefix"), "fd77::2/64".parse().expect("a prefix")];
        let remote: HostPort = "203.0.113.7:51900".parse().expect("a remote");
        let uplinks = ["wwan0", "eth0.7@x"].map(|name| Uplink {
            interface: name.into(),
            remote: remote.clone(),
            cost: "metered 5GB".parse().expect("a cost"),
        });
        let peer = peer("hub", &other, &["10.77.0.1/32".parse().expect("a prefix")]);
        made.write(&(end(&addresses, None, &[]) + &peer + &paths(&uplinks, &[]))).expect("a good file");
        let me = made.key.public();
        made.keep();
        assert_eq!(Made::begin(&file).err().map(|failure| failure.status), Some(2));
        append(&file, &self::peer("van", &me, &["10.77.0.9/32".parse().expect("a prefix")]))
            .expect_err("its own key is no peer's");
        let third = PrivateKey::generate(&mut OsRng.unwrap_err()).public();
        // [tunnel] in a fragment.
        let fragments = folder.path().join("new/split.toml.d");
        fs::create_dir(&fragments).expect("a folder");
        fs::write(fragments.join("tunnel.toml"), end(&addresses, Some(1), &[])).expect("a fragment");
        let split = folder.path().join("new/split.toml");
        fs::write(&split, "").expect("a file");
        append(&split, &self::peer("van", &third, &["10.77.0.9/32".parse().expect("a prefix")]))
            .expect("good with its fragment");
        // What one that was killed in the middle has left.
        fs::write(file.with_extension("toml.new"), "half").expect("a leftover");
        let before = fs::read_to_string(&file).expect("the file");
        // Root alone may give it away.
        let _ = std::os::unix::fs::chown(&file, Some(7), Some(8));
        let owner = || fs::metadata(&file).map(|it| (it.uid(), it.gid(), it.mode())).expect("the file");
        let owner_before = owner();
        append(
            &file,
            &(self::peer("van", &third, &["10.77.0.9/32".parse().expect("a prefix")])
                + &paths(&[], std::slice::from_ref(&remote))),
        )
        .expect("another peer");
        assert!(fs::read_to_string(&file).expect("the file").starts_with(&before));
        assert_eq!(owner(), owner_before);
        write(&file, "", 0o600, None).expect_err("it is not overwritten");
        assert!(!file.with_extension("toml.new").exists(), "nothing is left");
        fs::remove_file(&file).expect("the file");
        assert_eq!(Made::begin(&file).expect("the key stays").key.public(), me);
    }

    #[test]
    fn who_may_not_write_is_told_what_to_do() {
        let said = cannot("write", Path::new("/etc/nawa/key"), &ErrorKind::PermissionDenied.into());
        assert!(said.lines[0].ends_with("use sudo, or name another place with --file"), "{said:?}");
    }

    #[test]
    fn what_is_not_kept_goes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("nawa.toml");
        drop(Made::begin(&file).expect("a folder"));
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
        let mut made = Made::begin(&file).expect("a folder");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0, "nothing is written yet");
        made.write(&end(&["10.77.0.2/24".parse().expect("a prefix")], Some(1), &[])).expect("a good file");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 2);
        drop(made);
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }
}
