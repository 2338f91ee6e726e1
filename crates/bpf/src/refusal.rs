//! Opening objects, and why the kernel takes no program.

use libbpf_rs::{Object, ObjectBuilder, OpenObject, PrintLevel, ProgramMut};

use crate::{Error, probe};

/// What libbpf says is for developers.
pub(crate) fn hush() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, |_, line| tracing::debug!("{}", line.trim_end()))));
}

/// Opens the compiled `object`; errors call it `name`.
///
/// # Errors
/// What libbpf says.
pub fn open(object: &[u8], name: &str) -> Result<OpenObject, Error> {
    hush();
    ObjectBuilder::default().open_memory(object).map_err(|error| refused(name, error))
}

/// The program `name` of a loaded object.
///
/// # Errors
/// There is none.
pub fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, Error> {
    object.progs_mut().find(|one| one.name() == name).ok_or_else(|| Error::Missing(name.to_owned()))
}

/// The kernel refuses `program`: it is locked down, this process may load none, or for another reason.
pub fn refused(program: &str, error: libbpf_rs::Error) -> Error {
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    refused_under(&lockdown, probe::allowed(), program, error)
}

fn refused_under(
    lockdown: &str,
    allowed: Result<(), Error>,
    program: &str,
    error: libbpf_rs::Error,
) -> Error {
    let denied = error.kind() == libbpf_rs::ErrorKind::PermissionDenied;
    match allowed {
        _ if lockdown.contains("[confidentiality]") => Error::LockedDown(program.to_owned()),
        Err(why) if denied => why,
        _ => Error::Refused { program: program.to_owned(), error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_reason() {
        let sentence = |lockdown, allowed, code| {
            let error = libbpf_rs::Error::from_raw_os_error(code);
            refused_under(lockdown, allowed, "show", error).to_string()
        };
        assert!(sentence("none integrity [confidentiality]\n", Ok(()), 1).contains("locked down"));
        assert!(sentence("none [integrity] confidentiality\n", Ok(()), 1).contains("refuses"));
        assert!(sentence("", Ok(()), 1).contains("refuses"));
        let missing = || Err(Error::NotAllowed("CAP_BPF".into()));
        assert!(sentence("", missing(), 1).starts_with("BPF programs need CAP_BPF, which"));
        assert!(sentence("", missing(), 22).contains("refuses"), "it is not for want of a capability");
    }
}
