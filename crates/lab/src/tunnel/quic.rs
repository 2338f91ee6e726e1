//! One QUIC connection from server to client: quinn's protocol, driven by a thread that has both ends.
//!
//! The certificate is made on the spot and trusted by the client alone.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use device::poller::{Interest, Poller};
use quinn_proto::congestion::{BbrConfig, CubicConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event,
    ServerConfig, StreamEvent, StreamId, TransportConfig,
};
use rustls::RootCertStore;

use crate::clock;
use crate::error::{Doing, Error, Result};
use crate::network::Network;
use crate::statistics::mbps;

const NAME: &str = "server";

const PORT: u16 = 4433;

/// What may be under way or wait for the receiver, in bytes, so that it limits nothing; one chunk that is written at a time.
const WINDOW: u32 = 32 << 20;
const CHUNK: usize = 64 << 10;

/// Payload that reached the client in `time` from its first packet on, in Mbit/s, sent by `server` with quinn's own
/// `congestion_control`. The client leaves with `source` where one is given.
pub(crate) fn download(
    network: &Network,
    source: Option<IpAddr>,
    server: IpAddr,
    congestion_control: &str,
    time: Duration,
) -> Result<f64> {
    let target = SocketAddr::new(server, PORT);
    let source = SocketAddr::new(source.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), 0);
    let (far, near) = (network.server.udp(target)?, network.client.udp(source)?);
    Ok(mbps(transfer(near, far, target, congestion_control, time)?, time))
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::program("QUIC", error.to_string())
}

/// The bytes that reached `near`.
fn transfer(
    near: UdpSocket,
    far: UdpSocket,
    target: SocketAddr,
    congestion_control: &str,
    time: Duration,
) -> Result<u64> {
    let (client, server) = configs(congestion_control)?;
    let mut far = End::new(far, Some(server));
    let mut near = End::new(near, None);
    let start = clock::now();
    near.connection = Some(near.endpoint.connect(start, client, target, NAME).map_err(failed)?);
    let mut poller = Poller::new().doing(|| "make an epoll instance".into())?;
    for end in [&near, &far] {
        poller.add(&end.socket, 0, Interest::Read).doing(|| "wait for a socket".into())?;
    }
    while clock::now() < start + time {
        let due = [near.drive()?, far.drive()?].into_iter().flatten().min();
        let until = due.map_or(start + time, |due| due.min(start + time));
        let timeout = until.saturating_duration_since(clock::now());
        let _ = poller.wait(Some(timeout)).doing(|| "wait for sockets".into())?.count();
    }
    Ok(near.received)
}

fn configs(congestion_control: &str) -> Result<(ClientConfig, Arc<ServerConfig>)> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.into()]).map_err(failed)?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).map_err(failed)?;
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(failed)?;
    let mut server =
        ServerConfig::with_single_cert(vec![made.cert.der().clone()], key.into()).map_err(failed)?;
    let mut transport = TransportConfig::default();
    transport.receive_window(WINDOW.into()).stream_receive_window(WINDOW.into()).send_window(WINDOW.into());
    match congestion_control {
        "bbr" => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
        _ => transport.congestion_controller_factory(Arc::new(CubicConfig::default())),
    };
    let transport = Arc::new(transport);
    client.transport_config(transport.clone());
    server.transport_config(transport);
    Ok((client, Arc::new(server)))
}

/// One end. The server's sends, the client's receives.
struct End {
    socket: UdpSocket,
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    sending: Option<StreamId>,
    receiving: Option<StreamId>,
    received: u64,
    server: bool,
}

impl End {
    fn new(socket: UdpSocket, server: Option<Arc<ServerConfig>>) -> Self {
        Self {
            socket,
            server: server.is_some(),
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), server, true, None),
            connection: None,
            sending: None,
            receiving: None,
            received: 0,
        }
    }

    /// Does all that can be done now; when it wants to be called again at the latest.
    fn drive(&mut self) -> Result<Option<Instant>> {
        let now = clock::now();
        self.read_socket(now).map_err(failed)?;
        let Some((handle, connection)) = &mut self.connection else { return Ok(None) };
        if connection.poll_timeout().is_some_and(|due| due <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected if self.server => self.sending = connection.streams().open(Dir::Uni),
                Event::Stream(StreamEvent::Opened { dir }) => {
                    self.receiving = connection.streams().accept(dir)
                }
                Event::ConnectionLost { reason } => return Err(failed(reason)),
                _ => {}
            }
        }
        if let Some(stream) = self.sending {
            while connection.send_stream(stream).write(&[0; CHUNK]).is_ok_and(|written| written > 0) {}
        }
        if let Some(stream) = self.receiving {
            self.received += read(connection, stream);
        }
        let mut datagram = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now, 1, &mut datagram) {
            // What the kernel refuses is lost.
            let _ = self.socket.send_to(&datagram[..transmit.size], transmit.destination);
            datagram.clear();
        }
        Ok(connection.poll_timeout())
    }

    fn read_socket(&mut self, now: Instant) -> io::Result<()> {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
            let mut answer = Vec::new();
            let data = BytesMut::from(&buffer[..length]);
            match self.endpoint.handle(now, from, None, None, data, &mut answer) {
                Some(DatagramEvent::ConnectionEvent(_, event)) => {
                    if let Some((_, connection)) = &mut self.connection {
                        connection.handle_event(event);
                    }
                }
                Some(DatagramEvent::NewConnection(incoming)) => {
                    let accepted = self.endpoint.accept(incoming, now, &mut answer, None);
                    self.connection = Some(accepted.map_err(|error| io::Error::other(error.cause))?);
                }
                Some(DatagramEvent::Response(transmit)) => {
                    let _ = self.socket.send_to(&answer[..transmit.size], transmit.destination);
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// Takes what has arrived in order: how many bytes.
fn read(connection: &mut Connection, stream: StreamId) -> u64 {
    let mut receiver = connection.recv_stream(stream);
    let Ok(mut chunks) = receiver.read(true) else { return 0 };
    let mut bytes = 0;
    while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
        bytes += chunk.bytes.len() as u64;
    }
    // What that opens of the window is sent with the next datagram.
    let _ = chunks.finalize();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_carries_bytes_with_either_control() {
        let bound = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        for control in ["cubic", "bbr"] {
            let carries_within = |time| {
                let far = bound();
                let target = far.local_addr().unwrap();
                transfer(bound(), far, target, control, time).unwrap() > 0
            };
            // Where the machine is busy with other things, the first time is too short to shake hands.
            assert!(
                [300, 3000, 20_000].map(Duration::from_millis).into_iter().any(carries_within),
                "{control}"
            );
        }
    }
}
