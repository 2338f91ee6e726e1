//! One connection: what comes out of it goes to a UDP socket, and what comes from there into it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use device::poller::{Interest, Poller};
use rustls::Connection;

use super::frames::{self, Frames};
use crate::wire::CHALLENGE_LEN;

/// The datagrams that wait for TCP to take them: 30 ms at 20 Mbit/s. The kernel counts its own overhead, and so keeps about half.
const QUEUE: usize = 128 << 10;
/// Of what TCP has been given and not sent yet: little waits where nobody can drop it.
const UNSENT: u32 = 16 << 10;
/// What was sent is acknowledged within this time, or the connection is over.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of either direction in a turn, so that others have theirs.
const TURN: usize = 64 << 10;
/// Of datagrams in one record of TLS, whose limit is 16 KiB.
const RECORD: usize = 14 << 10;

/// A connection, its handshake done or not.
pub struct Pump {
    stream: TcpStream,
    tls: Connection,
    udp: Arc<UdpSocket>,
    frames: Frames,
    /// TCP takes no more for now.
    full: bool,
    /// Datagrams are read: there is a session, and room.
    open: bool,
    token: u64,
    /// Datagrams of this end's UDP socket that were put into the connection: at a relay its answers, at a client the tunnel's own.
    pub answered: u64,
    /// Datagrams of the connection that were handed on to the UDP socket.
    pub handed_on: u64,
}

impl Pump {
    /// Of a TCP connection that is made. Events come with `token`, and with the next one.
    pub fn new(
        poller: &Poller,
        token: u64,
        stream: TcpStream,
        tls: Connection,
        udp: Arc<UdpSocket>,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        device::tcp::set_most_unsent(&stream, UNSENT)?;
        rustix::net::sockopt::set_tcp_user_timeout(&stream, PATIENCE.as_millis() as u32)?;
        poller.add(&stream, token, Interest::Read)?;
        let frames = Frames::default();
        Ok(Self { stream, tls, udp, frames, full: false, open: false, token, answered: 0, handed_on: 0 })
    }

    /// Whether the handshake is done.
    pub fn is_made(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// Moves what there is to move.
    ///
    /// # Errors
    /// The connection is over.
    pub fn turn(&mut self, poller: &Poller) -> io::Result<()> {
        self.receive()?;
        let full = self.send()?;
        if std::mem::replace(&mut self.full, full) != full {
            let interest = if full { Interest::Both } else { Interest::Read };
            poller.change(&self.stream, self.token, interest)?;
        }
        let open = self.is_made() && !full;
        if std::mem::replace(&mut self.open, open) != open {
            match open {
                true => poller.add(&*self.udp, self.token + 1, Interest::Read)?,
                false => poller.remove(&*self.udp)?,
            }
        }
        Ok(())
    }

    /// Before it is dropped: its UDP socket may live on.
    pub fn close(&mut self, poller: &Poller) {
        if std::mem::take(&mut self.open) {
            // Only a descriptor that is not waited for can be refused.
            let _ = poller.remove(&*self.udp);
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        let mut received = 0;
        while received < TURN {
            match self.tls.read_tls(&mut self.stream) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the other end has closed it")),
                Ok(length) => received += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if let Err(error) = self.tls.process_new_packets() {
                // The other end may want to know.
                let _ = self.tls.write_tls(&mut self.stream);
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
            loop {
                match self.tls.reader().read(&mut buffer) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(length) => {
                        let (udp, handed_on) = (&self.udp, &mut self.handed_on);
                        // What is shorter is no message, and a thousand of them fit where one is paid for.
                        let each = |datagram: &[u8]| {
                            if datagram.len() >= CHALLENGE_LEN {
                                *handed_on += 1;
                                // What cannot be sent is lost, as on any network.
                                let _ = udp.send(datagram);
                            }
                        };
                        self.frames.take(&buffer[..length], each).map_err(io::Error::other)?;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// True if TCP takes no more.
    fn send(&mut self) -> io::Result<bool> {
        let mut sent = 0;
        loop {
            while self.tls.wants_write() {
                match self.tls.write_tls(&mut self.stream) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                    Err(error) => return Err(error),
                }
            }
            // Before there is a session, what comes waits, and is dropped when the queue is full.
            if self.tls.is_handshaking() || sent >= TURN {
                return Ok(false);
            }
            let record = self.record();
            if record.is_empty() {
                return Ok(false);
            }
            sent += record.len();
            self.tls.writer().write_all(&record)?;
        }
    }

    /// The next datagrams.
    fn record(&mut self) -> Vec<u8> {
        let mut record = Vec::new();
        let mut buffer = [0; frames::MAX + 1];
        while record.len() < RECORD - frames::MAX {
            match self.udp.recv(&mut buffer) {
                // A longer one is cut to what does not fit either, so that a search for the size finds what does.
                Ok(length) => self.answered += u64::from(frames::put(&mut record, &buffer[..length])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // What became of an earlier one.
                Err(error) => {
                    tracing::trace!("a datagram was lost on the loopback interface: {error}");
                    break;
                }
            }
        }
        record
    }
}

/// The socket on the loopback interface that stands for the other end, at `own`: hears `to` alone.
pub fn stand_in(own: SocketAddr, to: SocketAddr) -> io::Result<UdpSocket> {
    let udp = UdpSocket::bind(own)?;
    udp.connect(to)?;
    udp.set_nonblocking(true)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&udp, QUEUE)?;
    Ok(udp)
}
