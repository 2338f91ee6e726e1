//! An HTTP server for the files of a folder: busybox's, started per connection as inetd does.
//!
//! The lab makes the listening socket itself, because that is what decides the protocol (TCP or MPTCP) and the
//! congestion control of every connection accepted from it, MPTCP's later subflows among them. Neither a namespace's
//! default nor a route could: the first may be refused ([`crate::network`]), the second does not reach those subflows.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, accept_with, bind, ipproto, listen, shutdown,
    socket_with, sockopt,
};

use crate::background::spawn;
use crate::error::{Doing, Result};
use crate::namespace::Namespace;

/// A server that accepts connections until it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    listener: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Serves the files of `folder` at `address`, an address of `host`, with the `congestion_control` named, by TCP, or, where
    /// it is `multipath`, by MPTCP for clients that ask for it. It accepts connections when this returns.
    pub fn start(
        host: &Namespace,
        multipath: bool,
        congestion_control: &str,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<Self> {
        let listener = host.run(|| make_listener(multipath, congestion_control, address))?;
        let listener = Arc::new(listener.doing(|| format!("listen at {address} with {congestion_control}"))?);
        let (serving, namespace, folder) = (listener.clone(), host.path(), folder.to_owned());
        let serve = move || match device::netns::enter(&namespace) {
            Ok(()) => serve(&serving, &folder),
            Err(error) => eprintln!("the HTTP server cannot enter its namespace: {error}"),
        };
        let thread = spawn("http", serve)?;
        Ok(Self { listener, thread: Some(thread) })
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // Wakes the thread, whose `accept` fails from now on.
        let _ = shutdown(&*self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn make_listener(multipath: bool, congestion_control: &str, address: SocketAddr) -> io::Result<OwnedFd> {
    let protocol = multipath.then_some(ipproto::MPTCP);
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_tcp_congestion(&socket, congestion_control)?;
    bind(&socket, &address)?;
    listen(&socket, 64)?;
    Ok(socket)
}

/// Hands each connection to a busybox of its own. They end with this thread.
fn serve(listener: &OwnedFd, folder: &Path) {
    let mut children = Vec::new();
    while let Ok(connection) = accept_with(listener, SocketFlags::CLOEXEC) {
        match answer(connection, folder) {
            Ok(child) => children.push(child),
            Err(error) => eprintln!("cannot start `busybox httpd` (Debian package `busybox`): {error}"),
        }
    }
    for mut child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn answer(connection: OwnedFd, folder: &Path) -> io::Result<Child> {
    let mut command = Command::new("busybox");
    command.args(["httpd", "-i", "-h"]).arg(folder);
    command.stdin(connection.try_clone()?).stdout(connection).stderr(Stdio::null());
    command.process_group(0);
    device::process::die_with_parent(&mut command);
    command.spawn()
}
