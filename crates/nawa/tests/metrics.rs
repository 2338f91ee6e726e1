//! `[metrics]`: what a scraper gets of a running daemon, and what strangers get.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Daemon, Namespace, Node, namespaces_or_skip, output, replace, skip, stderr, stdout};

const TUNNEL: &str = "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24']\nlisten = 51900\n\
                      [metrics]\nlisten = '127.0.0.1:9477'\n";

/// The head and the body of the answer to `request`.
fn ask(namespace: &Namespace, request: &str) -> (String, String) {
    let mut answer = String::new();
    namespace.within(|| {
        let mut stream = TcpStream::connect("127.0.0.1:9477").expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        stream.read_to_string(&mut answer).expect("it answers");
    });
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")
}

#[test]
fn a_scraper_reads_every_family() {
    let Some(_alone) = namespaces_or_skip("a_scraper_reads_every_family") else { return };
    let (namespace, node, other) = (Namespace::new(), Node::new(), Node::new());
    let file = node.write(&format!(
        "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24']\nlisten = 51900\n\
         [[peer]]\nname = 'office'\npublic-key = '{}'\nroutes = ['10.77.0.2/32']\n\
         [[peer.path]]\nname = 'lte'\nremote = '127.0.0.1:9'\n\
         [relay]\nlisten = 51901\nallow = ['{}']\n[metrics]\nlisten = '127.0.0.1:9477'\n",
        other.public_key, other.public_key
    ));
    let daemon = Daemon::start(&namespace, &file);
    let (head, body) = ask(&namespace, &get("/metrics"));
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("application/openmetrics-text"), "{head}");
    let lines = body.lines().map(|line| Ok(line.to_owned()));
    let scrape = prometheus_parse::Scrape::parse(lines).expect("the text of Prometheus");
    let of = |metric: &str| {
        scrape
            .samples
            .iter()
            .find(|sample| sample.metric == metric)
            .unwrap_or_else(|| panic!("{metric} in {body}"))
    };
    for metric in
        ["nawa_peer_up", "nawa_path_weight_ratio", "nawa_path_sent_bytes_total", "nawa_relay_sessions"]
    {
        of(metric);
    }
    let labels = &of("nawa_path_up").labels;
    assert_eq!((labels.get("peer"), labels.get("path")), (Some("office"), Some("lte")));
    assert!(body.ends_with("# EOF\n"), "{body}");

    assert_eq!(ask(&namespace, &get("/health")), (ask(&namespace, &get("/health")).0, "ok\n".into()));
    assert!(ask(&namespace, &get("/else")).0.starts_with("HTTP/1.1 404"));
    assert!(ask(&namespace, "POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 400"));
    drop(daemon);
}

/// Prometheus itself, which is stricter than its parsers.
#[test]
fn a_real_prometheus_scrapes_it() {
    let name = "a_real_prometheus_scrapes_it";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    if Command::new("prometheus").arg("--version").output().is_err() {
        return skip(name, "needs prometheus");
    }
    let (namespace, node, other) = (Namespace::new(), Node::new(), Node::new());
    let peer = format!(
        "[[peer]]\nname = 'office'\npublic-key = '{}'\nroutes = ['10.77.0.2/32']\n",
        other.public_key
    );
    let file = node.write(&format!("{TUNNEL}{peer}"));
    let _daemon = Daemon::start(&namespace, &file);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("prometheus.yml");
    let page = include_str!("../../../docs/metrics.md");
    let (_, ours) = page.split_once("    scrape_configs:\n").expect("the page's configuration");
    let ours: Vec<&str> = ours.lines().map_while(|line| line.strip_prefix("    ")).collect();
    let text = format!("global: {{ scrape_interval: 1s }}\nscrape_configs:\n{}\n", ours.join("\n"));
    std::fs::write(&config, text).expect("its file");
    let words = [
        format!("--config.file={}", config.display()),
        format!("--storage.tsdb.path={}", folder.path().join("data").display()),
        "--web.listen-address=127.0.0.1:9090".into(),
    ];
    let mut scraper = namespace.command("prometheus", words.iter().map(String::as_str));
    let mut scraper = scraper.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("prometheus starts");
    let answer = common::eventually("a sample", || {
        let query = "http://127.0.0.1:9090/api/v1/query?query=nawa_peer_up";
        let answer = stdout(&output(&mut namespace.command("curl", ["-s", query])));
        answer.contains("\"peer\":\"office\"").then_some(answer)
    });
    assert!(answer.contains("\"success\""), "{answer}");
    // Where nothing is found, the namespace ends it.
    scraper.kill().and_then(|()| scraper.wait()).expect("prometheus ends");
}

/// Somebody takes the tunnel's interface away, and its name.
#[test]
fn a_strand_that_failed_is_said() {
    let Some(_alone) = namespaces_or_skip("a_strand_that_failed_is_said") else { return };
    let (namespace, node) = (Namespace::new(), Node::new());
    let file = node.write(TUNNEL);
    let _daemon = Daemon::start(&namespace, &file);
    let strand = |up: u8| format!("nawa_strand_up{{strand=\"tunnel\"}} {up}.0\n");
    namespace.ip("link delete nawa0");
    namespace.ip("link add nawa0 type veth peer name other0");
    let why = common::eventually("it is ill", || {
        let (head, why) = ask(&namespace, &get("/health"));
        head.starts_with("HTTP/1.1 503").then_some(why)
    });
    assert!(why.ends_with("\n") && why != "ok\n", "{why}");
    let (head, body) = ask(&namespace, &get("/metrics"));
    assert!(head.starts_with("HTTP/1.1 200") && body.contains(&strand(0)), "{body}");
    namespace.ip("link delete nawa0");
    common::eventually("it is well again", || (ask(&namespace, &get("/health")).1 == "ok\n").then_some(()));
    let body = ask(&namespace, &get("/metrics")).1;
    assert!(body.contains(&strand(1)) && body.contains("nawa_strand_failures{strand=\"tunnel\"}"), "{body}");
}

/// Those who say nothing hold all the places there are; one that goes makes room.
#[test]
fn callers_are_bounded() {
    let Some(_alone) = namespaces_or_skip("callers_are_bounded") else { return };
    let (namespace, node) = (Namespace::new(), Node::new());
    let file = node.write(TUNNEL);
    let _daemon = Daemon::start(&namespace, &file);
    namespace.within(|| {
        let connect = || TcpStream::connect("127.0.0.1:9477").expect("it listens");
        let silent: Vec<_> = (0..8).map(|_| connect()).collect();
        let mut ninth = connect();
        let mut nothing = Vec::new();
        // An end or a reset: it is turned away before it says anything.
        let _ = ninth.read_to_end(&mut nothing);
        assert!(nothing.is_empty());
        drop(silent);
    });
    common::eventually("there is room again", || {
        namespace.within(|| {
            let mut stream = TcpStream::connect("127.0.0.1:9477").ok()?;
            stream.write_all(get("/health").as_bytes()).ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.contains("200 OK").then_some(())
        })
    });
}

/// A panel of a metric that does not exist shows nothing, and says nothing.
#[test]
fn the_dashboard_and_the_page_name_metrics_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let (code, page) = (read("src/metrics/families.rs"), read("../../docs/metrics.md"));
    let dashboard = read("../../packaging/grafana.json");
    serde_json::from_str::<serde_json::Value>(&dashboard).expect("JSON");
    let names = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        words.filter(|word| word.starts_with("nawa_")).map(str::to_owned).collect()
    };
    let bare = |name: &str| {
        let name = name.strip_suffix("_total").unwrap_or(name);
        name.strip_suffix("_seconds").unwrap_or(name).to_owned()
    };
    let exist = names(&code);
    for name in names(&dashboard).into_iter().chain(names(&page)) {
        assert!(exist.contains(&bare(&name)), "there is no {name}");
    }
    let told: Vec<_> = names(&page).iter().map(|name| bare(name)).collect();
    for name in exist {
        assert!(told.contains(&name), "docs/metrics.md does not tell of {name}");
    }
}

#[test]
fn a_port_that_is_taken_leaves_nothing_behind() {
    let Some(_alone) = namespaces_or_skip("a_port_that_is_taken_leaves_nothing_behind") else { return };
    let (namespace, node, other) = (Namespace::new(), Node::new(), Node::new());
    let file = node.write(&format!(
        "[tunnel]\ninterface = 'nawa0'\naddresses = ['10.77.0.1/24']\n\
         [[peer]]\nname = 'office'\npublic-key = '{}'\nroutes = ['0.0.0.0/0']\n\
         [[peer.path]]\nname = 'lte'\nremote = '127.0.0.1:9'\n\
         [metrics]\nlisten = '127.0.0.1:9477'\n",
        other.public_key
    ));
    let _taken = namespace.within(|| std::net::TcpListener::bind("127.0.0.1:9477").expect("a port"));
    let before = (namespace.ip("rule"), namespace.ip("route show table all"));
    for (place, todo) in [
        ("127.0.0.1:9477", "; listen on another port, or stop the program that has this one\n"),
        ("192.0.2.1:9477", "; listen on an address that this host has\n"),
    ] {
        replace(&file, "127.0.0.1:9477", place);
        let output = output(&mut namespace.nawa(["run", file.to_str().expect("UTF-8")]));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).ends_with(todo), "{}", stderr(&output));
        assert_eq!((namespace.ip("rule"), namespace.ip("route show table all")), before);
    }
}
