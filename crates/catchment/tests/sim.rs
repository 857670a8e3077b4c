//! `catchment sim` as a user meets it: says where to look, answers there, and ends when asked to.
#![allow(clippy::unwrap_used)] // a test may

mod binary;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(&*binary::BINARY);
    command.arg("sim").args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The status line and body of a GET, on a connection of its own.
fn get(base: &str, path: &str) -> String {
    let (addr, prefix) = base.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(
        stream,
        "GET /{prefix}{path} HTTP/1.1\r\nhost: sim\r\nuser-agent: test\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn it_says_where_to_look_answers_there_and_ends_with_0_on_ctrl_c() {
    let mut child =
        start(&["--listen", "127.0.0.1:0", "--markets", "20", "--fault", "kalshi.server_error=1"]);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let bases: Vec<(String, String)> = lines
        .take(4)
        .map(|line| {
            line.unwrap().split_once(' ').map(|(api, base)| (api.into(), base.trim().into())).unwrap()
        })
        .collect();
    let apis: Vec<&str> = bases.iter().map(|(api, _)| api.as_str()).collect();
    assert_eq!(apis, ["polymarket/clob", "polymarket/gamma", "limitless", "kalshi"]);
    assert!(get(&bases[1].1, "/status").starts_with("HTTP/1.1 200"));
    assert!(get(&bases[2].1, "/markets/active?limit=1").contains("\"totalMarketsCount\":20"));
    assert!(get(&bases[3].1, "/exchange/status").starts_with("HTTP/1.1 503"));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_mistake_is_named_and_the_exit_code_is_2() {
    let out = start(&["--set", "polymarket.universe.marktes=5"]).wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(said, "catchment: polymarket.universe.marktes is no key of the simulation\n");
    let out = start(&["--listen", "0.0.0.0:0"]).wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(2), "not beyond loopback unless told");
}
