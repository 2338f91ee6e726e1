//! What `--json` prints: the names in it are a promise, kept in `tests/snapshots/json.txt`.

mod common;

use std::collections::BTreeSet;
use std::process::Stdio;

use common::{
    Daemon, Namespace, Node, eventually, namespaces_or_skip, output, skip, snapshot, stdout, succeed,
};
use serde_json::Value;

/// Two ends with all strands, joined by a cable.
struct Pair {
    van: Namespace,
    office: Namespace,
    _nodes: [Node; 2],
    _daemons: [Daemon; 2],
}

impl Pair {
    fn new() -> Pair {
        let [van, office] = std::array::from_fn(|_| Namespace::new());
        for (network, name) in ["wan", "mesh", "fl"].iter().enumerate() {
            let [one, other] = [1, 2].map(|host| format!("10.{network}.0.{host}/24"));
            Namespace::connect((&van, name, &one), (&office, name, &other));
        }
        [&van, &office].iter().for_each(|host| drop(host.ip("address flush dev mesh")));
        let nodes: [Node; 2] = std::array::from_fn(|_| Node::new());
        let daemons = [1, 0].map(|at| {
            let (own, other) = (at + 1, 2 - at);
            let key = &nodes[1 - at].public_key;
            let ends = ["listen = 51900\n", ""];
            let path = ["[[peer.path]]\nname = 'lte'\nremote = '10.0.0.2:51900'\n", ""][at];
            let listen = ends[1 - at];
            let file = nodes[at].write(&format!(
                "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.{own}/24']\n{listen}\
                 [[peer]]\nname = 'other'\npublic-key = '{key}'\nroutes = ['10.77.0.{other}/32']\n{path}\
                 [relay]\nlisten = 51901\nallow = ['{key}']\n[flight]\n[bicast]\ninterfaces = ['wan', 'fl']\n\
                 [[flood]]\ninterface = 'fl'\nid = {own}\n\
                 [[coding]]\ninterface = 'mesh'\nmaster = 'nc0'\naddresses = ['10.88.0.{own}/24']\n"
            ));
            Daemon::start([&van, &office][at], &file)
        });
        Pair { van, office, _nodes: nodes, _daemons: daemons }
    }

    /// What a command says on standard output, whatever its status: a `doctor` that finds something amiss fails.
    fn says(&self, command: &str) -> String {
        stdout(&output(&mut self.van.nawa(command.split(' '))))
    }
}

/// The names in `value`, with what leads to them. What comes and goes with time has no names below it.
fn names(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            let at = format!("{at}.{name}");
            found.insert(at.clone());
            if !["flows", "connections", "neighbours", "sources", "associations"].contains(&name.as_str()) {
                names(value, &at, found);
            }
        }),
        Value::Array(elements) => elements.iter().for_each(|one| names(one, &format!("{at}[]"), found)),
        _ => {}
    }
}

#[test]
fn every_command_has_the_names_in_its_json_that_it_promises() {
    let name = "every_command_has_the_names_in_its_json_that_it_promises";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    if let Err(error) = flight::kernel::probe() {
        return skip(name, &error.to_string());
    }
    let _machine = flight::kernel::lock::registration().expect("the lock can be taken");
    let pair = Pair::new();
    for to in ["10.77.0.2", "10.88.0.2"] {
        succeed(&mut pair.van.command("ping", ["-c", "3", "-i", "0.1", "-w", "30", to]));
    }
    let mut receives = pair.office.nawa(["flood", "recv", "fl", "--json", "--count", "1"]);
    let receives = receives.stdout(Stdio::piped()).spawn().expect("nawa starts");
    eventually("a receiver", || (pair.office.status()["flood"][0]["receivers"] == 1).then_some(()));
    succeed(&mut pair.van.nawa(["flood", "send", "fl", "brake!"]));
    let received = stdout(&receives.wait_with_output().expect("it ends"));
    let commands = [
        "status --json",
        "path show --json",
        "path why other --json",
        "peer show --json",
        "flight show --json",
        "doctor --json",
        "test other --time 5s --json",
        "flood ping fl 2 --count 2 --interval 10ms --json",
    ];
    let mut all: Vec<_> = commands.iter().map(|command| (*command, pair.says(command))).collect();
    let mut monitor = pair.van.nawa(["monitor", "--json", "--interval", "100ms"]);
    let mut monitor = monitor.stdout(Stdio::piped()).spawn().expect("nawa starts");
    let mut line = String::new();
    let shown = monitor.stdout.take().expect("stdout is piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(shown), &mut line).expect("a line");
    monitor.kill().and_then(|()| monitor.wait()).expect("it ends");
    all.extend([("monitor --json", line), ("flood recv --json", received)]);
    let mut shown = String::new();
    for (command, text) in all {
        let value: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{command}: {error}: {text}"));
        assert_eq!(value["schema"], 1, "{command}: {text}");
        let mut found = BTreeSet::new();
        names(&value, "", &mut found);
        shown += &format!("nawa {command}\n");
        found.iter().for_each(|name| shown += &format!("  {name}\n"));
    }
    snapshot("json", &shown);
}
