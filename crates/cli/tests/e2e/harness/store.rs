// SPDX-License-Identifier: MIT OR Apache-2.0
//! Object stores: a folder, servers for S3 (moto, SeaweedFS), azurite for Azure. A proxy stands
//! before servers.

use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{Proxy, free_port, must, output, skip_without, tool};

/// The account of azurite, which is the same everywhere: no secret.
const AZURITE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Makes azurite's container. Its requests are signed.
const MAKE_CONTAINER: &str = r#"
key=$(printf %s "$KEY" | base64 -d | od -An -tx1 | tr -d ' \n')
date=$(date -u '+%a, %d %b %Y %H:%M:%S GMT')
name=devstoreaccount1
words="PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:$date\nx-ms-version:2021-08-06\n/$name/$name/bucket\nrestype:container"
sign=$(printf "$words" | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | base64)
exec curl --silent --show-error --fail -X PUT -H 'Content-Length: 0' -H "x-ms-date: $date" \
    -H 'x-ms-version: 2021-08-06' -H "Authorization: SharedKey $name:$sign" \
    "http://127.0.0.1:$PORT/$name/bucket?restype=container"
"#;

/// Where objects are.
#[derive(Debug)]
pub(crate) enum Store {
    Folder,
    Server(Box<Server>),
}

/// The maker of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// S3. It keeps its objects in RAM.
    Moto,
    /// Azure's blobs. It writes its index to disk every 5 s.
    Azurite,
    /// S3, by SeaweedFS. It has a database of names before its files.
    Seaweed,
}

impl Maker {
    pub(crate) const ALL: [Self; 3] = [Self::Moto, Self::Azurite, Self::Seaweed];

    /// Says aloud that a test is skipped if the server is not here.
    fn is_here(self) -> bool {
        match self {
            Self::Moto => !skip_without(&["moto_server", "curl"]),
            Self::Azurite => !skip_without(&["azurite-blob", "curl", "openssl"]),
            Self::Seaweed => !skip_without(&["weed", "curl"]),
        }
    }
}

/// A server that runs, and the proxy before it.
#[derive(Debug)]
pub(crate) struct Server {
    maker: Maker,
    child: Child,
    pub(crate) proxy: Proxy,
    folder: TempDir,
}

impl Server {
    fn new(maker: Maker) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (port, child) = spawn(maker, &folder);
        Self { maker, child, proxy: Proxy::before(port), folder }
    }

    /// SIGKILL.
    pub(crate) fn kill9(&mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
    }

    /// The server begins with nothing. It gets what it had acknowledged.
    pub(crate) fn start_again(&mut self) {
        let port = self.start_empty();
        self.proxy.restore(port);
    }

    /// The server begins with an empty bucket; its port.
    pub(crate) fn start_empty(&mut self) -> u16 {
        self.folder = tempfile::tempdir().expect("a folder can be made");
        let (port, child) = spawn(self.maker, &self.folder);
        self.child = child;
        port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Starts a server with an empty bucket.
fn spawn(maker: Maker, folder: &TempDir) -> (u16, Child) {
    // Another test may be given a port before the server has it.
    let started = (0..5).find_map(|_| start(maker, folder));
    started.unwrap_or_else(|| panic!("the server {maker:?} ends again and again"))
}

/// Starts a server with an empty bucket, unless the server ends.
fn start(maker: Maker, folder: &TempDir) -> Option<(u16, Child)> {
    let port = free_port();
    let mut command = match maker {
        Maker::Moto => {
            let mut command = tool("moto_server");
            command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
            command
        }
        Maker::Azurite => {
            let mut command = tool("azurite-blob");
            command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
            command.args(["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--location"]).arg(folder.path());
            command
        }
        Maker::Seaweed => {
            let mut command = tool("weed");
            command.args(["server", "-filer", "-s3", "-s3.iam=false", "-s3.port.iceberg=0", "-master.telemetry=false"]);
            command.args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.volumeSizeLimitMB=1024", "-volume.max=20"]);
            command.arg(format!("-dir={}", folder.path().display())).arg(format!("-s3.port={port}"));
            let others = ["master", "volume", "filer"].map(|part| format!("-{part}.port={}", free_port()));
            let calls = ["master", "volume", "filer", "s3"].map(|part| format!("-{part}.port.grpc={}", free_port()));
            command.args(others).args(calls);
            command
        }
    };
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = spawned.expect("the server is installed");
    let mut has_ended = || child.try_wait().expect("our own child can be waited for").is_some();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if has_ended() {
            return None;
        }
        std::thread::sleep(std::time::Duration::from_millis(20)); // pacing: a poll of a port
    }
    match maker {
        // SeaweedFS listens before it can make a bucket.
        Maker::Moto | Maker::Seaweed => {
            let url = format!("http://127.0.0.1:{port}/bucket");
            while !output(tool("curl").args(["--silent", "--fail", "-X", "PUT", &url])).status.success() {
                if has_ended() {
                    return None;
                }
                std::thread::sleep(std::time::Duration::from_millis(100)); // pacing: a poll of a server
            }
        }
        Maker::Azurite => {
            let mut bash = tool("bash");
            must(bash.args(["-c", MAKE_CONTAINER]).env("PORT", port.to_string()).env("KEY", AZURITE_KEY));
        }
    }
    Some((port, child))
}

impl Store {
    /// The server, if it is installed; says aloud if it is not.
    pub(crate) fn server(maker: Maker) -> Option<Self> {
        maker.is_here().then(|| Self::Server(Box::new(Server::new(maker))))
    }

    /// The servers that are installed.
    pub(crate) fn servers() -> impl Iterator<Item = Self> {
        Maker::ALL.into_iter().filter_map(Self::server)
    }

    pub(crate) fn is_server(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// The server, which must be one.
    #[track_caller]
    pub(crate) fn as_server(&mut self) -> &mut Server {
        match self {
            Self::Server(server) => server,
            Self::Folder => panic!("a folder is no server"),
        }
    }

    /// The proxy before the server.
    #[track_caller]
    pub(crate) fn proxy(&self) -> &Proxy {
        match self {
            Self::Server(server) => &server.proxy,
            Self::Folder => panic!("a folder has no proxy"),
        }
    }

    /// The URL of a volume of this name. Folders are below `place`.
    pub(crate) fn url(&self, place: &super::Place, name: &str) -> String {
        match self {
            Self::Folder => format!("file://{}", place.file(name).display()),
            Self::Server(server) if server.maker == Maker::Azurite => format!("az://bucket/{name}"),
            Self::Server(_) => format!("s3://bucket/{name}"),
        }
    }

    /// Lets a program find the store.
    pub(crate) fn known<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if let Self::Server(server) = self {
            let url = format!("http://127.0.0.1:{}", server.proxy.port);
            match server.maker {
                Maker::Moto | Maker::Seaweed => {
                    command.env("AWS_ENDPOINT_URL", url).env("AWS_REGION", "us-east-1");
                    command.env("AWS_ACCESS_KEY_ID", "none").env("AWS_SECRET_ACCESS_KEY", "none");
                }
                Maker::Azurite => {
                    command.env("AZURE_STORAGE_USE_EMULATOR", "true").env("AZURITE_BLOB_STORAGE_URL", url);
                }
            }
        }
        command
    }
}
