//! Pages over HTTP.
//!
//! hyper and not axum: axum's server has no limits of connections and of time, and one page needs no router.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::page::MEDIA_TYPE;
use super::source::Source;
use crate::outcome::Outcome;
use crate::output::say;

/// Connections at once. Others wait in the kernel until one has ended.
const CONNECTIONS_MAX: usize = 64;

/// How long the head of a request may take.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// Bytes of the longest head of a request, the least that hyper allows.
const HEAD_BYTES_MAX: usize = 8192;

/// How long a page waits for the host. Prometheus waits 10 s for the page.
const HOST_TIME: Duration = Duration::from_secs(5);

/// How long a connection lasts, from when it is accepted to the last byte of its page.
const CONNECTION_TIME: Duration = Duration::from_secs(15);

/// How long the server pauses if a connection cannot be accepted, as without a free descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves pages until the process ends.
///
/// # Errors
/// The runtime cannot be made.
pub fn serve(listener: TcpListener, source: Source) -> Result<Infallible, Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        // The one that waits for the host.
        .max_blocking_threads(1)
        .build()
        .map_err(Outcome::no)?;
    runtime.block_on(async {
        listener.set_nonblocking(true).map_err(Outcome::no)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(Outcome::no)?;
        let source = Arc::new(Mutex::new(source));
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_BYTES_MAX)
            // A scraper that keeps its connection would keep a place.
            .keep_alive(false)
            .half_close(true);
        let mut is_said = false;
        loop {
            let place = places.clone().acquire_owned().await;
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if !std::mem::replace(&mut is_said, true) {
                        say(format_args!(
                            "siga: no connection can be accepted, and is tried again: {error}"
                        ));
                    }
                    sleep(PAUSE).await;
                    continue;
                }
            };
            is_said = false;
            let source = source.clone();
            let service = service_fn(move |request| answer(request, source.clone()));
            let connection = http.serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move {
                // A client that is gone, or too slow, is no fault of the server.
                let _ = timeout(CONNECTION_TIME, connection).await;
                drop(place);
            });
        }
    })
}

/// Answers a request.
async fn answer(
    request: Request<Incoming>,
    source: Arc<Mutex<Source>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = "text/plain; charset=utf-8";
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let right = "must be GET or HEAD\n";
        let headers = [(CONTENT_TYPE, text), (ALLOW, "GET, HEAD")];
        return Ok(response(StatusCode::METHOD_NOT_ALLOWED, &headers, right.into()));
    }
    if request.uri().path() != "/metrics" {
        let right = "the metrics are at /metrics\n";
        return Ok(response(StatusCode::NOT_FOUND, &[(CONTENT_TYPE, text)], right.into()));
    }
    let page = tokio::task::spawn_blocking(move || {
        source.lock().unwrap_or_else(PoisonError::into_inner).shared()
    });
    // If the host takes longer, the thread goes on waiting, and later pages wait for the thread.
    let page = match timeout(HOST_TIME, page).await {
        Ok(Ok(page)) => page,
        _ => Source::down().into(),
    };
    Ok(response(StatusCode::OK, &[(CONTENT_TYPE, MEDIA_TYPE)], page))
}

fn response(
    status: StatusCode,
    headers: &[(HeaderName, &'static str)],
    body: Bytes,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    for (name, value) in headers {
        let value = hyper::header::HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Listens at an address.
///
/// # Errors
/// The address cannot be listened at.
pub fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Outcome> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    listener.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => ": something else listens there: choose another port",
            std::io::ErrorKind::AddrNotAvailable => ": must be an address of this machine",
            _ => "",
        };
        Outcome::No(format!("cannot listen at {address}: {error}{hint}"))
    })
}
