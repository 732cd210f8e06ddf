// A page behind Penstock, in Java 17 without a library: java Page.java 127.0.0.1:8080

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.Executors;

public class Page {
    private static final String NODE =
            System.getenv().getOrDefault("PENSTOCK", "127.0.0.1:7949");
    private static final HttpClient CLIENT =
            HttpClient.newBuilder().connectTimeout(Duration.ofMillis(500)).build();

    /** Charges one unit. Null: the node has not answered, and the request is admitted. */
    static HttpResponse<byte[]> check(String limit, String key) throws InterruptedException {
        String query = "limit=" + URLEncoder.encode(limit, StandardCharsets.UTF_8)
                + "&key=" + URLEncoder.encode(key, StandardCharsets.UTF_8);
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://" + NODE + "/v1/check?" + query))
                .timeout(Duration.ofMillis(500)).build();
        try {
            return CLIENT.send(request, HttpResponse.BodyHandlers.ofByteArray());
        } catch (IOException e) {
            return null;
        }
    }

    static void page(HttpExchange exchange) throws IOException {
        String user = exchange.getRequestHeaders().getFirst("X-User");
        String key = user != null ? user : exchange.getRemoteAddress().getHostString();
        int status = 200;
        byte[] body = "hello\n".getBytes(StandardCharsets.UTF_8);
        try {
            HttpResponse<byte[]> answer = check("api", key);
            if (answer != null) {
                for (String name : new String[] {"RateLimit", "RateLimit-Policy", "Retry-After", "Content-Type"}) {
                    answer.headers().firstValue(name)
                            .ifPresent(value -> exchange.getResponseHeaders().set(name, value));
                }
                if (answer.statusCode() != 200) {
                    status = answer.statusCode() == 429 ? 429 : 500;
                    body = answer.body();
                } else {
                    exchange.getResponseHeaders().set("Content-Type", "text/plain");
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    public static void main(String[] args) throws IOException {
        String[] address = args[0].split(":");
        HttpServer server = HttpServer.create(
                new InetSocketAddress(address[0], Integer.parseInt(address[1])), 0);
        server.createContext("/", Page::page);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
    }
}
