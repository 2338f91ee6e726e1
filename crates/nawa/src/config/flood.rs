//! `[[flood]]`.

use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flood::node::{Mode, Settings};
use flood::suppression;
use flood::{Format, RateLimit, Rules, Wire};
use toml::Spanned;
use tunnel::keys::KeyError;
use zeroize::Zeroizing;

use super::source::{Source, unique};
use super::{document, secret, value};

/// UDP port of the modes `kernel` and `application`, if none is written.
const PORT: u16 = 51902;
/// TTL of messages that name none, if none is written.
const TTL: u8 = 16;
/// More repeats only make a storm.
const REPEATS: u32 = 8;

/// SipHash's key: 16 of the 32 bytes of a key file, those in the middle, of which `nawa keygen` leaves every bit random.
struct Key([u8; 16]);

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Key, KeyError> {
        let bytes = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| KeyError::NotBase64)?);
        let whole: &[u8; 32] = bytes.as_slice().try_into().map_err(|_| KeyError::Length(bytes.len()))?;
        Ok(Key(std::array::from_fn(|at| whole[8 + at])))
    }
}

/// Checks every section by itself, then that each has an interface of its own.
pub fn all(source: &mut Source, written: Vec<document::Flood>) -> Vec<Settings> {
    let interfaces = written.iter().map(|flood| (flood.interface.span(), flood.interface.get_ref().clone()));
    unique(source, interfaces, "another [[flood]] has this interface; an interface floods once");
    written.into_iter().filter_map(|written| one(source, written)).collect()
}

fn one(source: &mut Source, written: document::Flood) -> Option<Settings> {
    let interface = source.expect(written.interface.span(), value::interface(written.interface.get_ref()));
    let wire = wire(source, &written);
    let mode = written
        .mode
        .as_ref()
        .map_or(Some(Mode::default()), |mode| source.expect(mode.span(), self::mode(mode.get_ref())));
    contradictions(source, &written, wire, mode);
    let rate_limit = written.rate_limit.as_ref().and_then(|limit| rate_limit(source, limit));
    let key = written.key_file.as_ref().and_then(|file| {
        let path = source.folder().join(file.get_ref());
        source.expect(file.span(), secret::read_shared::<Key>(&path))
    });
    let ttl = in_range(source, written.ttl.as_ref(), 1, "a TTL of 0 reaches nobody; write 1 to 255");
    let port = in_range(source, written.port.as_ref(), 1, "0 is not a port; write 1 to 65535");
    let suppression = suppression(source, &written);
    let format = Format::new(wire?, key.map(|key| key.0));
    Some(Settings {
        interface: interface?,
        rules: Rules { format, id: *written.id.get_ref(), rate_limit },
        mode: mode?,
        ttl: ttl.unwrap_or(TTL),
        port: port.unwrap_or(PORT),
        suppression: suppression?,
        busy_poll: written.busy_poll,
        // What a start decides.
        epoch: 0,
        warnings: Vec::new(),
    })
}

fn wire(source: &mut Source, written: &document::Flood) -> Option<Wire> {
    let wire = match written.wire.as_ref().map(|wire| (wire.span(), *wire.get_ref())) {
        Some((_, 0)) => Wire::Paper,
        Some((_, 1)) | None => Wire::One,
        Some((span, other)) => {
            source.complain(span, format!("there is no wire version {other}; write 0 (the paper's) or 1"));
            return None;
        }
    };
    if *written.id.get_ref() > wire.id_max() {
        source.complain(written.id.span(), "wire version 0 has IDs of 8 bits; write 0 to 255, or wire = 1");
    }
    Some(wire)
}

fn mode(text: &str) -> Result<Mode, String> {
    let all = [Mode::Driver, Mode::Kernel, Mode::Application];
    let wrong = || format!("there is no mode \"{text}\"; write \"driver\", \"kernel\" or \"application\"");
    all.into_iter().find(|mode| mode.name() == text).ok_or_else(wrong)
}

/// What cannot be together.
fn contradictions(source: &mut Source, written: &document::Flood, wire: Option<Wire>, mode: Option<Mode>) {
    if let (Some(file), Some(Wire::Paper)) = (&written.key_file, wire) {
        source
            .complain(file.span(), "wire version 0 has no room for a tag; remove the key, or write wire = 1");
    }
    if mode != Some(Mode::Kernel) {
        return;
    }
    if let Some(file) = &written.key_file {
        let what =
            "nftables cannot check tags; remove the key, or write mode = \"driver\" or \"application\"";
        source.complain(file.span(), what);
    }
    let waits =
        [&written.threshold, &written.enough, &written.repeats].into_iter().flatten().map(Spanned::span);
    let waits = waits.chain(written.jitter.as_ref().map(Spanned::span));
    let suppress = written.suppress.as_ref().filter(|suppress| *suppress.get_ref()).map(Spanned::span);
    if let Some(span) = waits.chain(suppress).min_by_key(|span| span.start) {
        let what = "nftables relay at once; remove this, or write mode = \"driver\" or \"application\"";
        source.complain(span, what);
    }
}

fn rate_limit(source: &mut Source, limit: &Spanned<u32>) -> Option<RateLimit> {
    match *limit.get_ref() {
        0 => None,
        frames_per_s @ 1..=RateLimit::MAX => Some(RateLimit { frames_per_s }),
        _ => {
            let most = RateLimit::MAX;
            let what = format!("a rate limit is 1 to {most} frames per second; 0 is none");
            source.complain(limit.span(), what);
            None
        }
    }
}

/// The value, if there is one of at least `least`.
fn in_range<T: Copy + PartialOrd>(
    source: &mut Source,
    value: Option<&Spanned<T>>,
    least: T,
    what: &str,
) -> Option<T> {
    let value = value?;
    if *value.get_ref() < least {
        source.complain(value.span(), what);
    }
    Some(*value.get_ref())
}

fn suppression(source: &mut Source, written: &document::Flood) -> Option<suppression::Rules> {
    let suppress = written.suppress.as_ref().is_some_and(|suppress| *suppress.get_ref());
    let base = if suppress { suppression::Rules::SUPPRESSED } else { suppression::Rules::PURE };
    let jitter = match &written.jitter {
        Some(text) => source.expect(text.span(), value::jitter(text.get_ref()))?,
        None => base.jitter,
    };
    if let Some(repeats) = written.repeats.as_ref().filter(|repeats| *repeats.get_ref() > REPEATS) {
        source.complain(repeats.span(), format!("more than {REPEATS} repeats make a storm; write fewer"));
    }
    let number = |value: &Option<Spanned<u32>>, base| value.as_ref().map_or(base, |value| *value.get_ref());
    Some(suppression::Rules {
        jitter,
        threshold: number(&written.threshold, base.threshold),
        enough: number(&written.enough, base.enough),
        repeats: number(&written.repeats, base.repeats),
    })
}
