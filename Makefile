# What a fresh machine needs is git, make and Rust (rustup). Each target installs what else is missing from the
# distribution's packages, says what, and asks for root by sudo where it needs it.

CARGO ?= cargo
PREFIX ?= /usr/local
TARGET := $(or $(CARGO_TARGET_DIR),target)
NAWA := $(TARGET)/release/nawa
# What `make deb` and `make tarball` are for: this machine's kind, or, with ARCH=arm64, another, for which a cross compiler builds.
ARCH ?=
TRIPLET := $(if $(ARCH),$(or $(patsubst arm64,aarch64,$(filter arm64,$(ARCH))),$(error make: ARCH is arm64, or left out)))
FOR := $(if $(ARCH),--target $(TRIPLET)-unknown-linux-gnu)
BUILT := $(TARGET)/$(if $(ARCH),$(TRIPLET)-unknown-linux-gnu/)release
CROSS := CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc PKG_CONFIG_ALLOW_CROSS=1 \
    PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig

# The lab makes network namespaces and TAP devices: that takes root.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

# Of this Makefile alone: a build script of ours runs another one, which has the same names for something else.
MAKEOVERRIDES =
unexport DESTDIR PREFIX

.DEFAULT_GOAL := help
.PHONY: commands book help demo test guest wifi lint lint-tools readme bench fuzz install rivals results ns3 usrsctp uninstall build package deb tarball cargo-present

help:
	@echo "make demo      one file over three bad links: the best link alone, MPTCP, Nawa (about two and a half minutes; root)"
	@echo "make test      all tests (root, for those in network namespaces)"
	@echo "make guest     other kernels: Debian's in qemu for make test, user-mode Linux for rivals in the lab"
	@echo "make readme    tables of README and docs/compared.md, and docs/field.svg, from docs/results"
	@echo "make results   docs/results anew, by this commit's program (four hours, resumes; root, and nothing else should run)"
	@echo "make commands  docs/commands.md, from what --help says"
	@echo "make book      the documentation as a site in target/book (mdBook)"
	@echo "make wifi      coding and flooding on Linux's own Wi-Fi: radios of mac80211_hwsim in a guest"
	@echo "make lint      rustfmt, clippy (QUIC as well), the size of fsat, results and who cites them, circles of imports, cargo-deny"
	@echo "make bench     the lab's tunnel experiment, short (root)"
	@echo "make fuzz      the fuzzers, a minute each (nightly Rust, cargo-fuzz)"
	@echo "make rivals    builds what the lab compares with: boringtun, wireguard-go"
	@echo "make ns3       the 802.11 model compared with ns-3, which comes from PyPI"
	@echo "make usrsctp   what copies of packets do to FreeBSD's SCTP, in virtual time"
	@echo "make deb       target/debian/nawa_*.deb (cargo-deb); ARCH=arm64: for that, by a cross compiler"
	@echo "make tarball   target/nawa-*.tar.gz, to be unpacked in / of a host without compilers; ARCH=arm64 likewise"
	@echo "make install   the binary, the C library of flood, the systemd unit and a sample configuration under $(PREFIX);"
	@echo "               make uninstall takes them away"

cargo-present:
	@command -v $(CARGO) >/dev/null || { echo "make: there is no cargo; install Rust from https://rustup.rs" >&2; exit 1; }

build: cargo-present
	@scripts/install-packages build
	$(CARGO) build --release --locked --package nawa

demo: build
	@scripts/install-packages demo
	@[ -z "$(SUDO)" ] || echo "make: sudo, because the lab makes network namespaces and TAP devices"
	$(SUDO) $(NAWA) lab run demo

test: cargo-present
	@scripts/install-packages build test
	@CARGO="$(CARGO)" scripts/test

guest:
	@scripts/install-packages guest
	@scripts/guest-kernel 6.1 6.12
	@scripts/install-packages lab-guest

wifi: cargo-present
	@scripts/install-packages build guest
	@scripts/guest-kernel 6.1 6.12
	$(CARGO) test --release --locked --package nawa --test guest_wifi -- --nocapture

results: build
	@scripts/install-packages demo lab-guest
	$(SUDO) scripts/make-results

readme: build
	@scripts/readme-tables
	$(NAWA) lab report docs/results --html $(TARGET)/report.html --picture docs/field.svg

commands: build
	$(NAWA) generate target/packaging
	cp target/packaging/commands.md docs/commands.md

book:
	@command -v mdbook >/dev/null || $(CARGO) install --locked mdbook
	mdbook build

lint: cargo-present
	@scripts/install-packages lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package lab --features quic --all-targets --locked -- -D warnings
	@scripts/count-fsat
	@scripts/readme-tables --check
	@scripts/check-results
	@scripts/import-circles
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --workspace check bans licenses sources; \
	else echo "make: cargo-deny is not installed, so licences and sources go unchecked; run make lint-tools"; fi

lint-tools: cargo-present
	$(CARGO) install --locked cargo-deny

bench: build
	@scripts/install-packages bench
	$(SUDO) $(NAWA) lab run tunnel --quick

fuzz: cargo-present
	@scripts/fuzz

rivals: cargo-present
	@scripts/install-packages build rivals
	@scripts/build-rivals

ns3: cargo-present
	@scripts/install-packages build ns3
	@CARGO="$(CARGO)" scripts/ns3

usrsctp:
	@scripts/install-packages usrsctp
	@scripts/usrsctp

# nawa@NAME runs /etc/nawa/NAME.toml in the network namespace NAME; but for that it is the same unit.
package: build
	$(NAWA) generate target/packaging
	sed 's|/etc/nawa/nawa.toml|/etc/nawa/%i.toml|; s|^Description=.*|& (namespace %i)|; s|^\[Service\]|&\nNetworkNamespacePath=/run/netns/%i|' \
	    packaging/nawa.service > target/packaging/nawa@.service
	$(if $(ARCH),@scripts/install-packages $(ARCH))
	$(if $(ARCH),$(CROSS) $(CARGO) build --release --locked --package nawa $(FOR))

deb: package
	@scripts/install-packages deb
	@command -v cargo-deb >/dev/null || $(CARGO) install --locked cargo-deb
	$(CARGO) deb --package nawa --no-build --locked --strip $(FOR)

# What the .deb has, under /usr/local. The host that unpacks it needs libelf1 and zlib1g, and no compiler.
tarball: TREE := $(TARGET)/tarball/usr/local
tarball: package
	rm -rf $(TARGET)/tarball
	install -D -m 0755 -s --strip-program=$(if $(ARCH),$(TRIPLET)-linux-gnu-)strip $(BUILT)/nawa $(TREE)/bin/nawa
	install -D -m 0644 -t $(TREE)/share/man/man1 target/packaging/man/*.1
	install -D -m 0644 target/packaging/completions/nawa.bash $(TREE)/share/bash-completion/completions/nawa
	install -D -m 0644 -t $(TREE)/share/zsh/site-functions target/packaging/completions/_nawa
	install -D -m 0644 -t $(TREE)/share/fish/vendor_completions.d target/packaging/completions/nawa.fish
	install -D -m 0644 -t $(TREE)/share/doc/nawa packaging/nawa.toml packaging/grafana.json packaging/nawa.lua LICENSE-APACHE LICENSE-MIT
	install -d $(TREE)/lib/systemd/system
	for unit in packaging/nawa.service target/packaging/nawa@.service; do \
	    sed 's|/usr/bin/nawa|/usr/local/bin/nawa|' $$unit >$(TREE)/lib/systemd/system/$$(basename $$unit); done
	cd $(TARGET)/tarball && find usr -type f | sort | \
	    tar --owner=root:0 --group=root:0 -czf ../nawa-$$(../release/nawa --version | cut -d' ' -f2)-$(or $(ARCH),$$(uname -m)).tar.gz -T -

install: build
	$(CARGO) build --release --locked --package flood-c
	$(SUDO) install -D -m 0644 $(TARGET)/release/libnawa_flood.a $(DESTDIR)$(PREFIX)/lib/libnawa_flood.a
	$(SUDO) install -D -m 0755 $(TARGET)/release/libnawa_flood.so $(DESTDIR)$(PREFIX)/lib/libnawa_flood.so
	$(SUDO) install -D -m 0644 crates/flood-c/include/nawa-flood.h $(DESTDIR)$(PREFIX)/include/nawa-flood.h
	$(SUDO) install -D -m 0755 -s $(NAWA) $(DESTDIR)$(PREFIX)/bin/nawa
	$(SUDO) install -D -m 0644 packaging/nawa.toml $(DESTDIR)$(PREFIX)/share/doc/nawa/nawa.toml
	sed 's|/usr/bin/nawa|$(PREFIX)/bin/nawa|' packaging/nawa.service > $(TARGET)/nawa.service
	$(SUDO) install -D -m 0644 $(TARGET)/nawa.service $(DESTDIR)$(PREFIX)/lib/systemd/system/nawa.service

uninstall:
	$(SUDO) rm -f $(addprefix $(DESTDIR)$(PREFIX)/,lib/libnawa_flood.a lib/libnawa_flood.so include/nawa-flood.h bin/nawa \
	    share/doc/nawa/nawa.toml lib/systemd/system/nawa.service)
