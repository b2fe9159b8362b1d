"use strict";

// Refreshes the tables in place and draws the graph. Without it the page tells the same by itself.
(() => {
    const PERIOD = 2000; // milliseconds

    const drawing = document.getElementById("drawing");
    const wide = () => drawing.clientWidth > 600;
    const stamp = () => document.getElementById("caption").dataset.stamp;
    let graph = null;
    let places = new Map();
    let drawn = "";

    // Whatever differs in a new copy of the page takes its place here, unless somebody is in it.
    function takeOver(copy) {
        for (const old of document.querySelectorAll("[data-live]")) {
            const fresh = copy.getElementById(old.id);
            if (fresh && fresh.outerHTML !== old.outerHTML && !old.contains(document.activeElement)) {
                old.replaceWith(document.adoptNode(fresh));
            }
        }
    }

    async function refresh() {
        if (!document.hidden) {
            try {
                const answer = await fetch(location.href);
                if (answer.ok) {
                    takeOver(new DOMParser().parseFromString(await answer.text(), "text/html"));
                    await draw();
                }
            } catch {
                // The server is being started again; the next look finds it.
            }
        }
        setTimeout(refresh, PERIOD);
    }

    function colour(name) {
        return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    }

    function style() {
        return [
            { selector: "node", style: {
                "width": "data(size)", "height": "data(size)",
                "label": (node) => (wide() || node.data("dependents") > 2 ? node.id() : ""),
                "font-size": 12, "color": colour("--body-fg"), "background-color": colour("--link-fg"),
                "text-valign": "bottom", "text-margin-y": 3,
                "text-outline-width": 2, "text-outline-color": colour("--body-bg"),
            } },
            { selector: "node[!version]", style: {
                "background-opacity": 0, "border-width": 2, "border-color": colour("--body-quiet-color"),
                "color": colour("--body-quiet-color"),
            } },
            { selector: "edge", style: {
                "width": 1.2, "curve-style": "straight", "opacity": 0.6, "arrow-scale": 0.8,
                "line-color": colour("--body-quiet-color"), "target-arrow-shape": "triangle",
                "target-arrow-color": colour("--body-quiet-color"),
            } },
            { selector: "edge[?conflict]", style: {
                "width": 2, "opacity": 1, "line-style": "dashed", "line-color": colour("--error-fg"),
                "target-arrow-color": colour("--error-fg"),
            } },
        ];
    }

    // Where each node starts: in a spiral, heaviest inside, so that the same graph looks the same.
    // What neither requires nor is required has nothing to draw.
    function elements(told) {
        const nodes = told.nodes.filter((node) => node.dependents || node.pulls_in);
        nodes.sort((one, other) => other.dependents - one.dependents);
        return [
            ...nodes.map((node, number) => {
                const [turn, far] = [number * 2.4, 40 * Math.sqrt(number)];
                return {
                    data: { ...node, id: node.name, size: 12 + 5 * Math.sqrt(node.dependents) },
                    position: { x: far * Math.cos(turn), y: far * Math.sin(turn) },
                };
            }),
            ...told.edges.map((edge) => ({ data: { ...edge, id: `${edge.source} ${edge.target}` } })),
        ];
    }

    async function draw() {
        if (drawn === stamp() || !stamp()) {
            return;
        }
        const now = stamp();
        const answer = await fetch(drawing.dataset.graph);
        const found = elements(await answer.json());
        drawing.hidden = false;
        document.querySelector(".story-legend").hidden = false;
        if (graph) {
            graph.destroy();
        }
        graph = cytoscape({
            container: drawing,
            elements: found,
            style: style(),
            layout: { name: "cose", animate: false, randomize: false, nodeOverlap: 20, gravity: 1 },
            userZoomingEnabled: false,
            boxSelectionEnabled: false,
        });
        places = new Map(graph.nodes().map((node) => [node.id(), { ...node.position() }]));
        spread();
        graph.on("tap", "node", (event) => {
            location.assign(drawing.dataset.entity.replace("NAME", event.target.id()));
        });
        drawn = now;
        drawing.dataset.drawn = now;
    }

    // The layout's places fill the window: half by distance, half by order, so that crowds thin out.
    function spread() {
        for (const [axis, room, margin] of [["x", drawing.clientWidth, 60], ["y", drawing.clientHeight, 24]]) {
            const order = graph.nodes().sort((one, other) => places.get(one.id())[axis] - places.get(other.id())[axis]);
            const [least, most] = [order.first(), order.last()].map((node) => places.get(node.id())[axis]);
            order.forEach((node, number) => {
                const far = (places.get(node.id())[axis] - least) / (most - least || 1);
                const rank = number / (order.length - 1 || 1);
                node.position(axis, margin + (room - 2 * margin) * (far + rank) / 2);
            });
        }
        graph.viewport({ zoom: 1, pan: { x: 0, y: 0 } });
    }

    function recolour() {
        if (graph) {
            graph.style(style());
        }
    }

    new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    new ResizeObserver(() => {
        if (graph) {
            graph.resize();
            spread();
            recolour();
        }
    }).observe(drawing);
    draw().finally(() => setTimeout(refresh, PERIOD));
})();
