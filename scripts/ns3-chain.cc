// A TCP transfer over a chain of 802.11g stations at 54 Mbit/s in ns-3: what `link::dcf` is compared with. `make ns3`
// builds and runs it. Arguments: hops, and the number of a stream of chances. Prints Mbit/s of payload.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/mobility-module.h"
#include "ns3/network-module.h"
#include "ns3/wifi-module.h"

using namespace ns3;

// As crates/link/tests/dcf_chain.rs: stations 90 m apart, a window of 64 segments of 1448 bytes, an ACK for two.
static const double kSpacing = 90.0;
static const uint32_t kSegment = 1448;
static const uint32_t kWindow = 64;
static const double kSeconds = 10.0;
// So that the signal from a neighbour is 22 dB above the noise, as there, with path loss of exponent 3.
static const double kTxPowerDbm = 33.5;

int main(int argc, char *argv[])
{
    uint32_t hops = 1;
    uint32_t run = 1;
    CommandLine cmd;
    cmd.AddNonOption("hops", "number of hops", hops);
    cmd.AddNonOption("run", "number of the random stream", run);
    cmd.Parse(argc, argv);
    RngSeedManager::SetRun(run);

    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kSegment));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(kWindow * kSegment));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::WifiMacQueue::MaxSize", QueueSizeValue(QueueSize("1000p")));
    // Whoever the basic rate reaches is sensed, as in the model.
    Config::SetDefault("ns3::ThresholdPreambleDetectionModel::MinimumRssi", DoubleValue(-101.0));

    NodeContainer nodes;
    nodes.Create(hops + 1);

    MobilityHelper mobility;
    mobility.SetPositionAllocator("ns3::GridPositionAllocator", "DeltaX", DoubleValue(kSpacing), "GridWidth",
                                  UintegerValue(hops + 1));
    mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel");
    mobility.Install(nodes);

    YansWifiChannelHelper channel;
    channel.SetPropagationDelay("ns3::ConstantSpeedPropagationDelayModel");
    channel.AddPropagationLoss("ns3::LogDistancePropagationLossModel", "Exponent", DoubleValue(3.0));
    YansWifiPhyHelper phy;
    phy.SetChannel(channel.Create());
    phy.Set("TxPowerStart", DoubleValue(kTxPowerDbm));
    phy.Set("TxPowerEnd", DoubleValue(kTxPowerDbm));
    WifiMacHelper mac;
    mac.SetType("ns3::AdhocWifiMac", "QosSupported", BooleanValue(false));
    WifiHelper wifi;
    wifi.SetStandard(WIFI_STANDARD_80211g);
    wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager", "DataMode", StringValue("ErpOfdmRate54Mbps"),
                                 "ControlMode", StringValue("ErpOfdmRate24Mbps"));
    NetDeviceContainer devices = wifi.Install(phy, mac, nodes);

    InternetStackHelper internet;
    internet.Install(nodes);
    // The short slot, which an access point would announce.
    Config::Set("/NodeList/*/DeviceList/*/$ns3::WifiNetDevice/Phy/Slot", TimeValue(MicroSeconds(9)));

    Ipv4AddressHelper addresses;
    addresses.SetBase("10.88.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    Ipv4StaticRoutingHelper routing;
    for (uint32_t node = 0; node <= hops; ++node)
    {
        Ptr<Ipv4StaticRouting> table = routing.GetStaticRouting(nodes.Get(node)->GetObject<Ipv4>());
        for (uint32_t other = 0; other <= hops; ++other)
        {
            if (other != node)
            {
                uint32_t next = other > node ? node + 1 : node - 1;
                table->AddHostRouteTo(interfaces.GetAddress(other), interfaces.GetAddress(next), 1, 0);
            }
        }
    }

    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5001));
    ApplicationContainer sinks = sink.Install(nodes.Get(hops));
    BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(interfaces.GetAddress(hops), 5001));
    bulk.Install(nodes.Get(0)).Start(Seconds(1.0));

    // The first second is slow start.
    uint64_t before = 0;
    Ptr<PacketSink> received = DynamicCast<PacketSink>(sinks.Get(0));
    Simulator::Schedule(Seconds(2.0), [&]() { before = received->GetTotalRx(); });
    Simulator::Stop(Seconds(2.0 + kSeconds));
    Simulator::Run();
    std::cout << (received->GetTotalRx() - before) * 8 / kSeconds / 1e6 << std::endl;
    Simulator::Destroy();
    return 0;
}
