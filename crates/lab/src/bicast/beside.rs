//! A TCP flow by the second path, beside transfers.

use std::time::Duration;

use super::network::Network;
use crate::error::Error;
use crate::iperf::{Iperf, Protocol};
use crate::program::Process;

const FLOW: Duration = Duration::from_secs(10);

/// The flow at work, in the direction of the transfers.
pub(super) struct Flow {
    client: Process,
    _server: Process,
}

impl Flow {
    pub(super) fn start(network: &Network) -> Result<Self, Error> {
        let server = network.second_address();
        let iperf = Iperf {
            server,
            source: None,
            congestion_control: "cubic",
            protocol: Protocol::Tcp,
            time: FLOW,
            flows: 1,
            reverse: false,
        };
        let _server = Iperf::serve(&network.server, &[], server)?;
        Ok(Self { client: iperf.start(&network.client)?, _server })
    }

    /// Its goodput in Mbit/s.
    pub(super) fn finish(self) -> Result<f64, Error> {
        Ok(Iperf::finish(self.client)?.goodput_mbps)
    }
}
