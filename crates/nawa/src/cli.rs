//! The command line: what may be typed, and which file does it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::command;
use crate::config::value;
use crate::control::{Request, path, peer};
use crate::failure::Failure;
use crate::logging;

const EXIT_STATUSES: &str = "\
Exit status: 0 done, 1 failed, 2 bad input (file, flag, key), 3 no daemon running.";

/// Many weak links, one strong line: one encrypted tunnel over several bad networks.
///
/// Without a command: the state of the running daemon, as `nawa status`.
#[derive(Parser, Debug)]
#[command(name = "nawa", version, after_help = EXIT_STATUSES)]
struct Cli {
    /// What to log: error, warn, info, debug, trace, or a filter such as `tunnel=debug` [default: $RUST_LOG, or
    /// info]
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<String>,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Prints a new private key, as `wg genkey` does
    Keygen,
    /// Reads a private key from stdin and prints its public key, as `wg pubkey` does
    Pubkey,
    /// Writes this end's key and configuration file, asking for what no flag gives; it overwrites nothing
    Init(command::init::Init),
    /// Invites a new end: prints a string, and a QR code, from which `nawa join` makes its file, and waits until it has joined
    ///
    /// The string holds one secret: a key for this one enrolment, which is worth nothing once the new end has joined, or the
    /// time is over, or this command is stopped. The new end makes its own private key, and sends only the public one. It
    /// comes by TCP to the port at which the tunnel listens by UDP.
    Invite(command::invite::Invite),
    /// Joins with the string of an invite: writes this end's key and configuration file, and tells the inviter the public key
    Join(command::join::Join),
    /// Checks a configuration file and prints FILE:LINE:COLUMN and what to do for each error
    Check(File),
    /// Says what this host can run, and what keeps paths from coming up: what each costs, and what to do
    ///
    /// With a file, also what that asks of this host. Its paths are tried for up to 8 s by a tunnel that routes nothing, unless a
    /// daemon runs: then they are as that has them. It fails if something does not work.
    Doctor(Doctor),
    /// Measures the tunnel to a peer: round trips idle and loaded, and what is delivered, by path and in all
    ///
    /// It fills the links for most of the time, in the direction away from this end; run it at the other end for the other one. The
    /// peer has to answer pings.
    Test(Test),
    /// Runs what a configuration file asks for, in the foreground, until SIGINT or SIGTERM
    Run(Run),
    /// Does the same in the background: returns when it is up, or says why not
    ///
    /// It logs to the journal or, where there is none, to `nawa.log` in the folder of its state, 1 MiB at most and as much of what came
    /// before. `nawa status` says where. That folder is `state-dir` of the file or, without that, /var/lib/nawa, and for a file that is
    /// not called nawa.toml the folder of its name in there.
    Up(File),
    /// Stops the daemon and waits until it is gone
    ///
    /// Without one it clears away what one that was killed has left, names that, and ends with 3.
    Down,
    /// Shows the state of the running daemon
    Status(Status),
    /// Shows the state of the paths again and again, with what has gone over each since the last time
    Monitor(Monitor),
    /// Shows the running daemon on the whole screen: paths with their last minutes, flows, and what the other strands do
    ///
    /// Keys: q ends it; p stops and goes on; / shows only what has a text in its name or address; s sorts paths by rate, round
    /// trip or loss; 1 to 5 show one part (paths, flows, flight, coding, flood), 0 all; j, k and the arrows scroll. Flows are those
    /// away from this end. Colours stay out where NO_COLOR is set. Where there is no terminal, or a dumb one, it prints as
    /// `nawa monitor`.
    Top(Top),
    /// Writes what goes through the tunnel as pcapng: inner and outer packets, each with its path and what decided as a comment
    ///
    /// Inner packets are written as they are, in the clear: whoever reads the file reads the traffic. So only root may capture, and
    /// the file is for its owner alone. Outer packets are sealed; their comments say what is in them. It ends at Ctrl-C. A reader
    /// that is too slow loses packets, never the tunnel: how many is said at the end and in the file. One that takes nothing for 10
    /// minutes ends it.
    ///
    /// To watch: `nawa capture - | wireshark -k -i -`, with packaging/nawa.lua among Wireshark's plugins. What floods and codes goes
    /// over interfaces of the host, where tcpdump sees it.
    Capture(command::capture::Capture),
    /// Shows and changes the tunnel's paths while it runs; the file, when it is read again, overrides these changes
    #[command(subcommand)]
    Path(PathCommand),
    /// Shows and changes the tunnel's peers while it runs; the file, when it is read again, overrides these changes
    #[command(subcommand)]
    Peer(PeerCommand),
    /// The congestion controls `fsat` and `fsat_paper` for this kernel's TCP (needs root)
    ///
    /// FS-AT limits what a TCP connection has in flight to what its path carries, so that deep buffers stay empty,
    /// and does not take a radio's losses for congestion. It works at the sender alone, for every TCP application:
    /// those that ask for it (TCP_CONGESTION "fsat"), or all of a network namespace (--default). `fsat_paper` is the
    /// algorithm as published, `fsat` adds what the paper leaves open. Registering is for the whole kernel, whatever
    /// the namespace; what a congestion control does stays with the connections that use it.
    #[command(subcommand)]
    Flight(Flight),
    /// Messages to every node of an ad-hoc network, over an interface that a [[flood]] section names (needs root)
    #[command(subcommand)]
    Flood(Flood),
    /// Writes man pages and completions, for packages
    #[command(hide = true)]
    Generate {
        /// Where to
        folder: PathBuf,
    },
    /// Emulated networks and experiments on this machine (needs root)
    #[command(subcommand)]
    Lab(Lab),
}

#[derive(Args, Debug)]
struct File {
    /// The configuration file
    #[arg(default_value = "/etc/nawa/nawa.toml")]
    file: PathBuf,
}

/// What to look at, and how to show it.
#[derive(Args, Debug)]
pub struct Doctor {
    /// The configuration file whose strands to look at
    pub file: Option<PathBuf>,
    /// One JSON object instead of lines
    #[arg(long)]
    pub json: bool,
}

/// What to measure, and how to show it.
#[derive(Args, Debug)]
pub struct Test {
    /// The peer's name
    pub peer: String,
    /// An inner address of the peer's [default: the first host in its routes, or of this end's network]
    #[arg(long, value_name = "ADDRESS", value_parser = value::ip)]
    pub to: Option<std::net::IpAddr>,
    /// How long, with its unit
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = value::time)]
    pub time: Duration,
    /// One JSON object instead of a table; every unit is in its key's name
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
struct Run {
    #[command(flatten)]
    file: File,
    /// Started by `nawa up`: leave its terminal, and log to the journal or a file once ready
    #[arg(long, hide = true)]
    background: bool,
}

#[derive(Args, Debug)]
struct Status {
    /// One JSON object instead of tables; every unit is in its key's name
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Monitor {
    /// One JSON object a line instead of tables; every unit is in its key's name
    #[arg(long)]
    json: bool,
    /// The time from one to the next, with its unit
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = value::interval)]
    interval: Duration,
}

#[derive(Args, Debug)]
struct Top {
    /// The time from one state to the next, with its unit
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = value::interval)]
    interval: Duration,
}

#[derive(Subcommand, Debug)]
enum PathCommand {
    /// Shows the paths of all peers, of one, or one path
    Show(PathShow),
    /// Says why a path is as it is: its last changes, each with the number that decided it
    Why(PathWhy),
    /// Adds a path to a peer
    Add(path::Add),
    /// Removes a path that this end lists; what is under way on it is sent again over others
    Del(path::Del),
    /// Changes what is given of a path that this end lists
    Set(path::Set),
}

#[derive(Subcommand, Debug)]
enum PeerCommand {
    /// Shows all peers, or one
    Show(PeerShow),
    /// Adds a peer; `nawa path add` gives it paths, if this end is to call
    Add(peer::Add),
    /// Removes a peer, with its paths and routes
    Del(peer::Del),
}

/// Which peers to show, and how.
#[derive(Args, Debug)]
pub struct PeerShow {
    /// The peer's name
    pub name: Option<String>,
    /// One JSON object instead of a table; every unit is in its key's name
    #[arg(long)]
    pub json: bool,
}

/// Which paths to show, and how.
#[derive(Args, Debug)]
pub struct PathShow {
    /// The peer's name
    pub peer: Option<String>,
    /// The path's name
    pub name: Option<String>,
    /// One JSON object instead of tables; every unit is in its key's name
    #[arg(long)]
    pub json: bool,
}

/// Which paths to explain, and how.
#[derive(Args, Debug)]
pub struct PathWhy {
    /// The peer's name
    pub peer: String,
    /// The path's name
    pub name: Option<String>,
    /// One JSON object instead of lines; every unit is in its key's name
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
enum Flight {
    /// Registers them until `nawa flight off` or a reboot; what is registered already is replaced
    ///
    /// Connections that exist go on as they are, new ones get what is registered now: that is how to upgrade, or to
    /// change the base.
    On(FlightOn),
    /// Takes all back that `on` did
    ///
    /// Each namespace gets the default congestion control that it had before --default, unless somebody has changed
    /// it since. Connections that use them go on as they are until they end.
    Off(FlightOff),
    /// Shows what is registered, and what is known of each connection of this namespace
    ///
    /// target: the ceiling of what may be in flight, `-` where nothing queues and nothing is limited; space: what may
    /// be in flight now; rcv_bytes: what arrived within the least RTT, the path's BDP; cwnd: the base's own, which
    /// limits only below space; lost: losses judged radio (not answered) and congestion (answered).
    Show(Status),
}

/// What to register.
#[derive(Args, Debug)]
pub struct FlightOn {
    /// Make `fsat` the default of this network namespace: for every connection that does not ask for another
    #[arg(long)]
    pub default: bool,
    /// The congestion avoidance below, the kernel's own: how cwnd grows while nothing queues
    #[arg(long, value_enum, default_value_t)]
    pub base: crate::config::Base,
    /// What to add to the names, so that both bases can be registered at the same time (the lab compares them)
    #[arg(long, value_name = "TEXT", value_parser = suffix, default_value = "", hide = true)]
    pub suffix: String,
}

/// The kernel takes names of 15 bytes, and files are called by them.
fn suffix(text: &str) -> Result<String, String> {
    let fits = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    fits.then(|| text.to_owned())
        .ok_or_else(|| "it has at most five letters, digits and underscores".to_owned())
}

/// What to take back.
#[derive(Args, Debug)]
pub struct FlightOff {
    /// Only what has this at the end of its name
    #[arg(long, value_name = "TEXT", value_parser = suffix, default_value = "", hide = true)]
    pub suffix: String,
}

#[derive(Subcommand, Debug)]
enum Flood {
    /// Sends a message, or each line of stdin as one
    Send(FloodSend),
    /// Prints the messages that come, a line each
    Recv(FloodRecv),
    /// Sends pings to a node, which answers by itself, and prints how long each was under way
    ///
    /// With wire version 0, whose frames have no room to say that they are pings, the other node needs `nawa flood recv
    /// --echo`, which sends every message back.
    Ping(FloodPing),
}

/// What to send.
#[derive(Args, Debug)]
pub struct FloodSend {
    /// The interface
    #[arg(value_parser = value::interface)]
    pub interface: String,
    /// The message [default: each line of stdin]
    pub message: Option<String>,
    /// How many hops it may go; 0: as the file says
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value::whole::<u8>(0..=u8::MAX.into()))]
    pub ttl: u8,
}

/// What to receive, and how to show it.
#[derive(Args, Debug)]
pub struct FloodRecv {
    /// The interface
    #[arg(value_parser = value::interface)]
    pub interface: String,
    /// End after so many messages
    #[arg(long, value_name = "N", value_parser = value::whole::<u64>(1..=u64::MAX))]
    pub count: Option<u64>,
    /// End, and fail, if none comes for so long
    #[arg(long, value_name = "TIME", value_parser = value::time)]
    pub timeout: Option<Duration>,
    /// One JSON object a line: the header, and the data as hexadecimal digits
    #[arg(long)]
    pub json: bool,
    /// Send every message back, as `nawa flood ping` needs it with wire version 0; at one end only, for two answer each
    /// other without end
    #[arg(long)]
    pub echo: bool,
    /// Look for messages again and again, which takes a processor, instead of sleeping until woken
    #[arg(long)]
    pub busy_poll: bool,
}

/// Whom to ping, and how.
#[derive(Args, Debug)]
pub struct FloodPing {
    /// The interface
    #[arg(value_parser = value::interface)]
    pub interface: String,
    /// The other node's ID
    #[arg(value_parser = value::whole::<u32>(0..=u32::MAX.into()))]
    pub id: u32,
    /// How many pings
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value::whole::<u32>(1..=u32::MAX.into()))]
    pub count: u32,
    /// The time from one to the next, if the answer has come by then; 0ms: as soon as the answer comes
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = value::pause)]
    pub interval: Duration,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = value::time)]
    pub timeout: Duration,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value_t = 56, value_parser = value::whole::<u16>(16..=u16::MAX.into()))]
    pub size: u16,
    /// How many hops it may go; 0: as the file says
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value::whole::<u8>(0..=u8::MAX.into()))]
    pub ttl: u8,
    /// One JSON object at the end instead of lines; every unit is in its key's name
    #[arg(long)]
    pub json: bool,
    /// Look for answers again and again, which takes a processor, instead of sleeping until woken
    #[arg(long)]
    pub busy_poll: bool,
}

#[derive(Subcommand, Debug)]
enum Lab {
    /// Names the experiments
    List,
    /// Runs an experiment, or all of them: says how long it will take, measures, prints a table
    Run(Box<LabRun>),
    /// Writes one page of a folder of results, to read in a browser without a network
    Report(LabReport),
    /// Draws the course of one run that `--series` has written, as a page beside its file
    Show {
        /// The run's file, NAME.csv
        run: PathBuf,
    },
}

/// The options of `nawa lab report`.
#[derive(Args, Debug)]
pub struct LabReport {
    /// The folder, as `nawa lab run all --out DIR` fills it
    pub folder: PathBuf,
    /// Where to write the page [default: DIR/report.html]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also draws, as SVG, the convoy of `nawa lab run field` and what happened there
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
}

/// The options of one experiment's run.
#[derive(Args, Debug)]
pub struct LabRun {
    /// The experiment's name, as `nawa lab list` prints it, or `all`
    pub name: String,
    /// Only the cases whose key has one of these values, as system=nawa,mptcp; a value that no case has is an error that names
    /// those there are
    #[arg(value_name = "KEY=VALUE,…")]
    pub only: Vec<String>,
    /// End within about two minutes, `all` within 25
    #[arg(long, conflicts_with = "paper")]
    pub quick: bool,
    /// The paper's own sizes and repetitions
    #[arg(long)]
    pub paper: bool,
    /// How often each case is measured; the medians and where they lie are shown [default: the experiment's own]
    #[arg(long, value_name = "N", value_parser = value::whole::<u32>(1..=1000))]
    pub repeats: Option<u32>,
    /// How many cases are measured at the same time [default: the experiment's own]
    #[arg(long, value_name = "N", value_parser = value::whole::<u32>(1..=1000))]
    pub side_by_side: Option<u32>,
    /// Seed of all that is random in the emulated links
    #[arg(long, value_name = "N", value_parser = value::whole::<u64>(0..=u64::MAX))]
    pub seed: Option<u64>,
    /// A folder of recorded traces to use instead of generated ones
    #[arg(long, value_name = "DIR")]
    pub traces: Option<PathBuf>,
    /// Links of your own for `bond`, as "20@15±3 1% q50, 5@40 b0.25": Mbit/s @ ms one way ± jitter, loss, queue, the way back
    /// (docs/lab.md); again for another set
    #[arg(long, value_name = "LINKS")]
    pub links: Vec<String>,
    /// Another `nawa` than this one as the system under test
    #[arg(long, value_name = "PROGRAM")]
    pub nawa: Option<PathBuf>,
    /// A rival beside `nawa`: a program that the lab starts as `PROGRAM client` and `PROGRAM server` (docs/lab.md)
    #[arg(long, value_name = "PROGRAM")]
    pub rival: Option<PathBuf>,
    /// The folder that `all` fills with NAME.json for each experiment; what is there is not measured again [default: lab-results]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["json", "html"])]
    pub out: Option<PathBuf>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the course of each run over emulated links as a CSV file (queues and rates, of `flight` cwnd and RTT)
    #[arg(long, value_name = "DIR")]
    pub series: Option<PathBuf>,
    /// Write a report to open in a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Parses the command line, runs the command, and turns its failure into sentences and an exit status.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    allow_descriptors();
    // What a trial says on its way is in the findings.
    let quiet = matches!(cli.command, Some(Command::Doctor(_))).then_some("error");
    match logging::start(cli.log_level.as_deref().or(quiet))
        .and_then(|()| dispatch(cli.command, cli.log_level.as_deref()))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

/// Lets this process open all the files and sockets that it may, of which it has few unless it asks: paths and clients take some.
fn allow_descriptors() {
    let limits = getrlimit(Resource::Nofile);
    // Where that is refused, those that are allowed may do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
}

fn dispatch(command: Option<Command>, level: Option<&str>) -> Result<(), Failure> {
    match command {
        None => command::status::run(false),
        Some(Command::Keygen) => command::keygen::run(),
        Some(Command::Pubkey) => command::pubkey::run(),
        Some(Command::Init(init)) => command::init::run(init),
        Some(Command::Invite(invite)) => command::invite::run(&invite),
        Some(Command::Join(join)) => command::join::run(&join),
        Some(Command::Check(File { file })) => command::check::run(&file),
        Some(Command::Doctor(doctor)) => command::doctor::run(&doctor),
        Some(Command::Test(test)) => command::test::run(&test),
        Some(Command::Run(Run { file, background })) => command::run::run(&file.file, background),
        Some(Command::Up(File { file })) => command::up::run(&file, level),
        Some(Command::Down) => command::down::run(),
        Some(Command::Status(Status { json })) => command::status::run(json),
        Some(Command::Monitor(Monitor { json, interval })) => command::monitor::run(json, interval),
        Some(Command::Capture(capture)) => command::capture::run(&capture),
        Some(Command::Top(Top { interval })) => command::top::run(interval),
        Some(Command::Path(PathCommand::Show(show))) => command::path::show(&show),
        Some(Command::Path(PathCommand::Why(why))) => command::path::why(&why),
        Some(Command::Path(PathCommand::Add(add))) => command::path::change(Request::PathAdd(add)),
        Some(Command::Path(PathCommand::Del(del))) => command::path::change(Request::PathDel(del)),
        Some(Command::Path(PathCommand::Set(set))) => command::path::set(set),
        Some(Command::Peer(PeerCommand::Show(show))) => command::peer::show(&show),
        Some(Command::Peer(PeerCommand::Add(add))) => command::path::change(Request::PeerAdd(add)),
        Some(Command::Peer(PeerCommand::Del(del))) => command::path::change(Request::PeerDel(del)),
        Some(Command::Flight(Flight::On(on))) => command::flight::on(&on),
        Some(Command::Flight(Flight::Off(off))) => command::flight::off(&off),
        Some(Command::Flight(Flight::Show(Status { json }))) => command::flight::show(json),
        Some(Command::Flood(Flood::Send(send))) => command::flood::send(&send),
        Some(Command::Flood(Flood::Recv(recv))) => command::flood::recv(&recv),
        Some(Command::Flood(Flood::Ping(ping))) => command::flood::ping::run(&ping),
        Some(Command::Generate { folder }) => command::generate::run(&folder, Cli::command()),
        Some(Command::Lab(Lab::List)) => command::lab::list(),
        Some(Command::Lab(Lab::Run(options))) => command::lab::run(*options),
        Some(Command::Lab(Lab::Report(report))) => command::lab::report(report),
        Some(Command::Lab(Lab::Show { run })) => command::lab::show(&run),
    }
}

fn report(failure: &Failure) -> ExitCode {
    for line in &failure.lines {
        // Where nobody listens, the exit status still speaks.
        let _ = writeln!(io::stderr(), "{line}");
    }
    ExitCode::from(failure.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_file_defaults_to_etc() {
        let cli = Cli::try_parse_from(["nawa", "check"]).expect("`nawa check` parses");
        let Some(Command::Check(File { file })) = cli.command else { panic!("not `check`") };
        assert_eq!(file, PathBuf::from("/etc/nawa/nawa.toml"));
    }

    fn root() -> PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// The repository's pages of documentation: their names and texts.
    fn pages() -> Vec<(String, String)> {
        let root = root();
        let mut folders = vec![root.join("docs")];
        let mut files = vec![root.join("README.md")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder of documentation") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => files.extend(path.extension().is_some_and(|end| end == "md").then_some(path)),
                }
            }
        }
        let page = |path: PathBuf| {
            let name = path.strip_prefix(&root).expect("a file below the root").display().to_string();
            (name, std::fs::read_to_string(path).expect("a page"))
        };
        files.into_iter().map(page).collect()
    }

    /// The words after `nawa` in a line of a block of code, without its explanation and what the shell does with it.
    fn words(line: &str) -> Option<Vec<&str>> {
        let line = line
            .trim_start()
            .split("# ")
            .find(|part| part.trim_start_matches("sudo ").starts_with("nawa "))?;
        let command = line
            .trim_start_matches("sudo ")
            .split("   ")
            .next()?
            .split(['<', '>', '|', ';', '&', '"'])
            .next()?;
        Some(command.split_whitespace().take_while(|word| *word != "…" && !word.starts_with('[')).collect())
    }

    #[test]
    fn the_documentation_names_no_command_and_no_flag_that_is_not_there() {
        let mut count = 0;
        for (page, text) in pages() {
            let mut fenced = false;
            for line in text.lines() {
                fenced ^= line.trim_start().starts_with("```");
                let Some(words) = words(line).filter(|_| fenced || line.starts_with("    ")) else {
                    continue;
                };
                let Err(error) = Cli::try_parse_from(&words) else {
                    count += 1;
                    continue;
                };
                use clap::error::ErrorKind;
                let unknown =
                    [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand, ErrorKind::ArgumentConflict];
                assert!(!unknown.contains(&error.kind()), "{page}: {line}\n{error}");
            }
        }
        assert!(count > 40, "{count} commands were found");
    }

    /// `nawa generate FOLDER` writes the page anew.
    #[test]
    fn the_page_of_the_commands_is_what_their_help_says() {
        let page = include_str!("../../../docs/commands.md");
        assert!(
            page == command::generate::page(Cli::command()),
            "docs/commands.md is another; make commands writes it"
        );
    }

    /// The headings of a page as links name them.
    fn headings(page: &std::path::Path) -> Vec<String> {
        let text = std::fs::read_to_string(page).expect("a page");
        let headings = text.lines().filter(|line| line.starts_with('#'));
        let named = |line: &str| {
            let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            words.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
        };
        headings.map(named).collect()
    }

    #[test]
    fn the_site_has_every_page_and_no_link_leads_nowhere() {
        let summary = include_str!("../../../docs/SUMMARY.md");
        for (page, text) in pages() {
            let name = page.strip_prefix("docs/").unwrap_or_default();
            let listed = ["", "SUMMARY.md", "results/README.md"].contains(&name)
                || summary.contains(&format!("({name})"));
            assert!(listed, "docs/SUMMARY.md does not list {name}");
            for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let (target, heading) = link.split_once('#').unwrap_or((link, ""));
                let file = root().join(&page);
                let there = match target {
                    "" => file,
                    target => file.parent().expect("a folder").join(target),
                };
                assert!(
                    target.starts_with("http") || there.exists(),
                    "{page} has a link to {target}, which is not there"
                );
                let found = heading.is_empty() || headings(&there).contains(&heading.to_owned());
                assert!(found, "{page} has a link to {link}, which has no such heading");
            }
        }
    }
}
